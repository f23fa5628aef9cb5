"""One partition on this broker: who leads it; append, and when an append is committed; following another leader."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from semel_protocol.control import MARKER_BYTES
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.disk import FilesUsedUp

from semel_broker.partitions.durability import DurablePartition
from semel_broker.partitions.read_view import LATEST, LOG_END, READ_COMMITTED, READ_UNCOMMITTED, UNSTABLE_MIN
from semel_broker.partitions.storage_errors import answering_used_up, used_up
from semel_broker.scheduling.waiters import OffsetWaiters

if TYPE_CHECKING:
    from semel_protocol.batch import BatchHeader
    from semel_storage.log.log import AppendResult, Log

    from semel_broker.partitions.flusher import Flusher
    from semel_broker.partitions.replicas import Replicas
    from semel_broker.world import World

__all__ = [
    "LATEST",
    "LOG_END",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "UNSTABLE_MIN",
    "Lease",
    "Partition",
    "Role",
]

Buffer = bytes | bytearray | memoryview

NOBODY = -1
NOWHERE = -1


class Role(Enum):
    """What this broker is to a partition of which it has a replica. NONE: not told yet, or its session is over."""

    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"


class Lease(Protocol):
    """What a leader's word rests on: the session of its broker."""

    def is_valid(self) -> bool:
        """Whether nobody else can have been made leader because this broker was not heard of."""
        ...


class Partition(DurablePartition):
    """A log, its role and its high watermark. The log is opened (and its directory created) at the first append, or by
    `open`. Without a word about roles it is led, by the only replica there is.

    `fsync`: only what is synced counts for the high watermark, so that consumers never see what a power cut could take
    back; every append schedules a sync, and all appends of one turn of the loop share it. Otherwise an append counts at
    once, as in Kafka. With followers (`replicas`) it is also theirs to have it.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        open_log: Callable[[], Log],
        world: World,
        fsync: bool,
        flusher: Flusher | None = None,
        topic_id: str = "",
        role: Role = Role.LEADER,
        lease: Lease | None = None,
    ) -> None:
        super().__init__(topic, index, open_log, world, fsync, flusher)
        self.topic_id = topic_id
        self.role = role
        self.is_leading = role is Role.LEADER
        self.leader = NOBODY
        self.replicas: Replicas | None = None
        self.is_whole = self.is_leading
        """Whether all replicas are in sync, as far as this broker has heard."""
        self._lease = lease
        self._committing = OffsetWaiters()
        self._storing = OffsetWaiters()

    # --- roles -----------------------------------------------------------------------------------------------

    def become_leader(self, epoch: int, replicas: Replicas | None = None) -> None:
        """Lead from now on, in this leader epoch. Without `replicas` there is no other one."""
        assert epoch >= self.leader_epoch, (self.topic, self.index, epoch, self.leader_epoch)
        self._give_up_waiting()
        self.role, self.is_leading = Role.LEADER, True
        self.leader, self.leader_epoch, self.replicas = NOBODY if replicas is None else replicas.me, epoch, replicas
        if self._log is not None:
            self._begin_counting(self._log)
            self._begin_epoch()

    def become_follower(self, leader: int, epoch: int) -> None:
        """Another broker leads in this epoch (NOBODY: none does). Who waits here hears that it is not here any more."""
        self.role, self.is_leading = Role.FOLLOWER, False
        self.leader, self.leader_epoch, self.replicas = leader, max(epoch, self.leader_epoch), None
        self._give_up_waiting()

    def resign(self) -> None:
        """Neither lead nor follow until told otherwise: this broker's session is over."""
        self.role, self.is_leading, self.is_whole = Role.NONE, False, False
        self.leader, self.replicas = NOBODY, None
        self._give_up_waiting()

    def update_isr(self, isr: list[int]) -> None:
        """These are in sync now, as the store has it."""
        if self.replicas is not None:
            self.replicas.settled(isr)
            self._update_high_watermark()

    def check_leading(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER unless this broker leads the partition for sure, 3 once it is retired."""
        if self._retired:
            raise self._gone()
        if not self.is_leading or (self._lease is not None and not self._lease.is_valid()):
            raise self._not_leader()

    def _begin_epoch(self) -> None:
        """Of a leader: its epoch begins at the end of the log."""
        log = self._log
        assert log is not None
        if self.replicas is None:
            if self.is_leading:
                self.leader_epoch = max(self.leader_epoch, log.epochs.latest)
        else:
            log.epochs.assign(self.leader_epoch, log.end_offset)
            self.replicas.epoch_start_offset = self._epoch_start_offset = log.end_offset
        self._update_high_watermark()

    def _give_up_waiting(self) -> None:
        self._fail_waiting(self._not_leader())
        self.release_fetches()

    def _fail_waiting(self, error: Exception) -> None:
        self._committing.fail(error)
        self._storing.fail(error)

    # --- writing ---------------------------------------------------------------------------------------------

    def append(
        self, batch: Buffer, *, header: BatchHeader, lazily: bool = False, acks_all: bool = True
    ) -> AppendResult:
        """Append one whole batch; runs to completion. With acks=all await `committed(result.last_offset + 1)`, with
        acks=1 what `storing` gives.

        `lazily`: nobody waits for it to be committed. Raises KafkaError: 10 and 18 (size), 45, 46 and 47 (producer
        state), 6 where another broker leads, 19 while too few replicas are in sync (`acks_all`), 3 once the partition
        is retired, 56 where no more files can be opened. A duplicate is no error: its result has the first offsets.
        """
        self.check_leading()
        log = self._log or self.open()
        if acks_all:
            self.check_in_sync(log)
        try:
            result = log.append(batch, header=header, leader_epoch=self.leader_epoch, now_ms=self._world.now_ms())
        except FilesUsedUp as error:
            raise used_up(error) from None
        if not result.duplicate:
            if header.is_transactional and self.open_transaction(header.producer_id) == result.base_offset:
                self._note_begin(result.base_offset)
            self._appended(header.size, lazily)
        return result

    def append_marker(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int
    ) -> AppendResult:
        """Append the marker that ends the producer's transaction here; runs to completion.

        Await `committed(result.last_offset + 1)` before the transaction counts as ended. To do so again is harmless:
        a retry is answered with the first one's place. Raises KafkaError: 47 for an epoch that a newer one has
        fenced, 52 for a coordinator whose successor has written here, 6 and 19 as `append`, 3 once the partition is
        retired.
        """
        self.check_leading()
        log = self._log or self.open()
        self.check_in_sync(log)
        now_ms = self._world.now_ms()
        with answering_used_up():
            result = log.append_marker(
                producer_id, producer_epoch, commit, coordinator_epoch, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        if not result.duplicate:
            self._appended(MARKER_BYTES)
        return result

    def check_in_sync(self, log: Log) -> None:
        """Raises NOT_ENOUGH_REPLICAS while fewer than min.insync.replicas are in sync, or than there are (KIP-966)."""
        replicas = self.replicas
        if replicas is not None and len(replicas.isr) < self._in_sync_min(log, replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index}: in sync are brokers {list(replicas.isr)}, "
                f"min.insync.replicas is {log.config.min_insync_replicas}",
            )

    def _in_sync_min(self, log: Log, replicas: Replicas) -> int:
        return min(log.config.min_insync_replicas, 1 + len(replicas.followers))

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's transaction that is open in this partition; None: none is."""
        state = self._log.producers.get(producer_id) if self._log is not None else None
        return state.txn_first_offset if state is not None and state.txn_first_offset >= 0 else None

    async def committed(self, offset: int) -> None:
        """Return once everything below `offset` is committed. Raises NOT_LEADER_OR_FOLLOWER if that is not for this
        broker to say any more."""
        if self.high_watermark < offset:
            self.hurry()
        if (future := self.committing(offset)) is not None:
            await future

    def committing(self, offset: int) -> Future[None] | None:
        """Done once everything below `offset` is committed; None: it is. Whoever has it may end it sooner.

        To be asked for in the turn of the append: only then the end of this leadership ends it. Raises as `committed`.
        """
        return None if self.high_watermark >= offset else self._waiting(self._committing, offset)

    def storing(self, offset: int) -> Future[None] | None:
        """As `committing`, once everything below `offset` is durable on this broker, whatever followers have."""
        self._update_high_watermark()  # a checkpoint's sync has covered it, perhaps, and told nobody
        return None if self.durable_end >= offset else self._waiting(self._storing, offset)

    def _waiting(self, waiters: OffsetWaiters, offset: int) -> Future[None]:
        if self._retired:
            raise self._gone()
        if self.role is not Role.LEADER:
            raise self._not_leader()
        return waiters.wait_for(offset, get_running_loop())

    def delete_records(self, before: int) -> int:
        """Move the log start to `before` (-1: the high watermark); returns the new low watermark.

        Raises OFFSET_OUT_OF_RANGE beyond the high watermark, 6 where another broker leads.
        """
        self.check_leading()
        if before == LATEST:
            before = self.high_watermark
        if before < 0 or before > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete records before {before}: the high watermark is {self.high_watermark}",
            )
        if before > self.log_start_offset:
            self.log.delete_records_before(before)
        return self.log_start_offset

    # --- followers -------------------------------------------------------------------------------------------

    def note_replica(self, replica: int, broker_epoch: int, offset: int, now_ms: int) -> None:
        """A follower has everything below `offset`. Raises NOT_LEADER_OR_FOLLOWER, 9 for who has no replica."""
        self.check_leading()
        replicas = self.replicas
        if replicas is None or not replicas.note_fetch(
            replica, broker_epoch, offset, now_ms=now_ms, end_offset=self.end_offset
        ):
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {replica} has no replica of {self.topic}-{self.index}"
            )
        self._update_high_watermark()

    @property
    def held_by_all(self) -> int:
        """Below it every replica has everything, as far as this broker can know; NOWHERE while one is not in sync. A
        leader knows by what its followers fetch, a follower by what is committed."""
        if not self.is_whole:
            return NOWHERE
        fetched = [] if self.replicas is None else self.replicas.offsets.values()
        return min([self.high_watermark, *fetched])

    # --- following -------------------------------------------------------------------------------------------

    @property
    def fetch_offset(self) -> int:
        """Where a follower goes on, which says that it has everything below."""
        return self.durable_end

    def append_replicated(
        self, data: Buffer, *, leader_epoch: int, high_watermark: int, log_start_offset: int = -1
    ) -> None:
        """Of a follower: whole batches as the leader of this epoch has them. `synced` says when they are durable."""
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        assert leader_epoch == self.leader_epoch, (self.topic, self.index, leader_epoch, self.leader_epoch)
        log = self.log
        log.append_replicated(data, now_ms=self._world.now_ms())
        self._bytes_appended += len(data)
        if self._fsync:
            self._flusher.add(self)
        else:
            self._sync_if_asked()
        self.note_leader(high_watermark, log_start_offset)

    def note_leader(self, high_watermark: int, log_start_offset: int = -1) -> None:
        """Of a follower: how far the leader says that the log is committed, and where it begins."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end_offset))
        log = self._log
        if log is None:
            return
        if log.start_offset < log_start_offset <= self.end_offset:
            log.delete_records_before(log_start_offset)
        log.producers.transactions.first_unstable_offset(self.high_watermark)  # forgets what is decided below it

    def truncate_to(self, offset: int) -> None:
        """Of a follower: what lies at `offset` and above is not what the leader has."""
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        if offset < self.high_watermark:
            self._world.log.error(
                "committed_records_truncated",
                topic=self.topic,
                partition=self.index,
                high_watermark=self.high_watermark,
                offset=offset,
            )
            self.high_watermark = offset
        self.log.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Of a follower: nothing of what is here is left in the leader's log, which starts at `offset`."""
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        self.log.restart_at(offset)
        self.high_watermark = offset

    # --- life ------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """The topic is deleted, or this replica: whoever waits or comes later gets UNKNOWN_TOPIC_OR_PARTITION."""
        self._retired = True
        self._fail_waiting(self._gone())
        self._durable.fail(self._gone())
        self.release_fetches()

    async def close(self) -> None:
        """For good: nothing is appended any more, and all that was is durable. The data directory closes the log."""
        self._flusher.forget(self)
        if self._lazy_flush is not None:
            self._lazy_flush.cancel()
        if self._flushing is not None:
            await self._flushing
        log, retired, self._retired = self._log, self._retired, True
        if log is not None and not retired:
            await log.durability.sync()
            self._update_high_watermark()
        self._fail_waiting(self._not_leader())
        self._durable.fail(self._gone())
        self.release_fetches()

    # --- inside ----------------------------------------------------------------------------------------------

    def _opened(self, log: Log) -> None:
        self._begin_epoch()

    def _settled(self) -> None:
        self._update_high_watermark()

    def _failed(self, error: Exception) -> None:
        self._fail_waiting(error)
        super()._failed(error)

    def _update_high_watermark(self) -> None:
        """Something that it follows from has changed: what is durable here, or at followers, or who is in sync."""
        end = self.durable_end
        if self._durable:
            self._durable.reached(end)
        if not self.is_leading:
            return
        if self._storing:
            self._storing.reached(end)
        replicas = self.replicas
        if replicas is not None:
            if self._lease is not None and not self._lease.is_valid():
                return
            least = self._in_sync_min(self._log, replicas) if self._log is not None else 1
            end = replicas.high_watermark(end, self.high_watermark, isr_min=least)
        if end > self.high_watermark:
            self._advance(end, self._bytes_below(end))
            if self._committing:
                self._committing.reached(end)

    def _not_leader(self) -> KafkaError:
        who = (
            f"broker {self.leader} leads"
            if self.leader != NOBODY and not self.is_leading
            else "nobody is known to lead"
        )
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{who} {self.topic}-{self.index}: refresh the metadata")
