"""Decides the outcome of each sent batch: stored, retried, or failed. Sends nothing itself.

The table in `semel._net.retry` maps error codes to actions. The effect on the sequences of later batches is decided
here (KIP-360).
"""

import logging

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceResponsePartition

from semel._config.client import CODEC_OF
from semel._config.producer import ProducerConfig
from semel._net.cluster import Cluster
from semel._net.retry import Action, action_for
from semel._produce.accumulator import Batch, BatchState, BufferMemory, PartitionQueue
from semel._produce.sequences import TransactionManager
from semel._produce.transaction_state import TransactionState
from semel.errors import KafkaError, KafkaTimeoutError, error_for

log = logging.getLogger(__name__)

MAYBE_STORED = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
"""Error codes after which the batch may be in the log. A leader that is replaced while it waits for its followers
answers only NOT_LEADER_OR_FOLLOWER.
"""

LOST_DATA = (
    "%s: the broker has lost acknowledged records, or the state of this producer: did its power fail, with "
    "durability=os? The producer continues under a new epoch. %s"
)
"""A gap in the sequences before a batch, although every earlier batch was acknowledged."""


class BatchOutcomes:
    """Applies answers, and missing answers, to batches. `apply` and `lost` return True for a batch to send again."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        memory: BufferMemory,
        manager: TransactionManager | None,
        transaction: TransactionState | None,
    ) -> None:
        self._cluster, self._edge, self._config = cluster, cluster.edge, config
        self._manager, self._memory, self._transaction = manager, memory, transaction

    def apply(self, batch: Batch, row: ProduceResponsePartition) -> bool:
        """The broker's answer about the batch's partition."""
        code, queue = row.error_code, batch.queue
        if code == ErrorCode.NONE:
            self.stored(batch, row.base_offset, row.log_append_time_ms, row.log_start_offset)
            return False
        action = action_for(code)
        if action is Action.STORED:
            self.stored(batch, -1, -1, row.log_start_offset)
            return False
        batch.maybe_stored = batch.maybe_stored or code in MAYBE_STORED
        what = f"produce to {queue.name}" + (f": {row.error_message}" if row.error_message else "")
        error = error_for(code, what, self._cluster.right(Operation.WRITE, topic=queue.topic))
        renews = action in (Action.NEW_EPOCH, Action.NEW_PRODUCER_ID)
        if self._transaction is not None and renews and queue.is_first_open(batch):
            self.failed(batch, error)  # only the coordinator may bump the epoch, after an abort
            return False
        if renews and self._manager is not None:
            if action is Action.NEW_PRODUCER_ID and self._transaction is None and batch.stamp is not None:
                self._manager.forget(batch.stamp.producer_id)
            batch.keeps_stamp = False
            # After a batch that must be sent again, a gap is only the consequence of that batch.
            if queue.is_first_open(batch) and not queue.needs_new_epoch:
                queue.needs_new_epoch = True
                if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not queue.abandoned:
                    log.warning(LOST_DATA, queue.name, error.message)
            # A gap proves that the batch is not in the log; the others prove nothing.
            if code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                queue.abandoned = queue.abandoned or batch.maybe_stored
            return self._retry(batch, error)
        if action is Action.REFRESH:
            leads = row.current_leader
            self._cluster.update_leader(queue.topic, queue.partition, leads.leader_id, leads.leader_epoch)
            self._cluster.request_refresh()
        if action in (Action.REFRESH, Action.BACKOFF):
            return self._retry(batch, error)
        if code == ErrorCode.MESSAGE_TOO_LARGE and 1 < batch.builder.record_count == len(batch.futures):
            log.info("%d records for %s are too large for one batch: sent as two", len(batch.futures), queue.name)
            queue.replace(batch, batch.halves(CODEC_OF[self._config.compression_type]))
            return False
        self.failed(batch, error)
        return False

    def lost(self, batch: Batch, error: KafkaError, *, sent: bool) -> bool:
        """There was no answer. The batch may be stored if it was sent."""
        batch.maybe_stored = batch.maybe_stored or sent
        if error.retriable:
            return self._retry(batch, error)
        self.failed(batch, error)
        return False

    def stored(self, batch: Batch, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        batch.queue.acknowledged(batch)
        self._memory.release(batch.reserved_bytes)
        batch.records_stored(base_offset, log_append_time_ms, log_start_offset)

    def failed(self, batch: Batch, error: KafkaError) -> None:
        """Fail the batch. Unless it may be stored, the batches numbered after it need a new epoch."""
        queue = batch.queue
        if self._transaction is not None:
            self._transaction.fail(error, needs_new_epoch=batch.stamp is not None)
        elif batch.stamp is not None and self._manager is not None:
            if batch.maybe_stored:
                queue.abandoned = True
            else:
                queue.broken_by(batch)
        queue.resolve(batch)
        self._memory.release(batch.reserved_bytes)
        batch.records_failed(error, reported_elsewhere=self._transaction is not None)

    def expire(self, queue: PartitionQueue, now: float) -> float | None:
        """Fail the batches past their deadline. Returns the next deadline of the queue."""
        for batch in (*queue.sent, *queue.waiting):  # the oldest first
            if batch.deadline > now:
                return batch.deadline
            if batch.state is BatchState.IN_FLIGHT:
                batch.records_failed(
                    self._too_late(batch), reported_elsewhere=self._transaction is not None
                )  # the batch stays in flight: its answer still decides about the sequences
                if self._transaction is not None:
                    self._transaction.fail(self._too_late(batch))
            else:
                self.failed(batch, self._too_late(batch))
        return None

    def rewind(self, queue: PartitionQueue) -> bool:
        """Put a settled queue under a new epoch. False when a new producer id is needed first."""
        assert self._manager is not None
        doubtful = queue.rewind(self._manager)
        if doubtful is None:
            return False
        log.info("%s restarts at sequence 0 of epoch %d", queue.name, queue.sequences.producer_epoch)
        for batch in doubtful:
            self.failed(batch, error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"produce to {queue.name}"))
        return True

    def _retry(self, batch: Batch, error: KafkaError) -> bool:
        if self._edge.monotonic() >= batch.deadline:
            batch.queue.last_error = error
            self.failed(batch, self._too_late(batch))
            return False
        if self._transaction is not None and self._transaction.must_abort:
            self.failed(batch, error)
            return False
        log.debug("produce to %s failed, trying again: %s", batch.queue.name, error)
        batch.queue.last_error = error
        batch.queue.retry(batch)
        return True

    def _too_late(self, batch: Batch) -> KafkaTimeoutError:
        queue, waited_ms = batch.queue, self._config.delivery_timeout_ms
        open_end = batch.maybe_stored or batch.state is BatchState.IN_FLIGHT
        fate = "may or may not be stored" if open_end else "not stored"
        reasons = [f"no success within delivery_timeout_ms={waited_ms} for {queue.name} ({fate})"]
        if self._manager is not None and self._manager.id_error is not None:
            reasons.append(f"there is no producer id: {self._manager.id_error.message}")
        elif queue.last_error is not None:
            reasons.append(queue.last_error.message)
        elif queue.node_id < 0:
            reasons.append("the partition has no leader")
        elif batch.state is BatchState.IN_FLIGHT:
            reasons.append(f"{self._cluster.pool.address(queue.node_id)} has not answered the last Produce request")
        return self._cluster.timed_out(": ".join(reasons), waited_ms)
