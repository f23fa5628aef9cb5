"""The TransactionGroup: the driver of several producers whose transactions commit as one.

    async with TransactionGroup("orders", bootstrap_servers=...) as group:
        step = await group.begin()
        # each worker: Producer(transaction_group_step=step), send, `await producer.prepare_transaction()`
        await group.commit(step, "batch 17", prepared)

docs/transaction-groups.md explains steps, tokens and errors.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType

from semel._config.arguments import checked
from semel._config.client import TransactionGroupConfig, takes_settings
from semel._net.calls import Calls
from semel._net.cluster import Cluster
from semel._net.lifecycle import ConnectionParts, Lifecycle
from semel._transactions import groups as transaction_groups
from semel.errors import InvalidTxnState, KafkaError, TransactionWasCommitted
from semel.structs import GroupStep, PreparedTransaction

log = logging.getLogger(__name__)

AGAIN = "It may be committed: call commit() again, with the same token, to learn the outcome"
UNKNOWN_OUTCOME = "An earlier try without an outcome may have committed it: look for its records before you do it again"


class TransactionGroup:
    """A group of transactions by name. Its members are the transactional ids `<name>/<member>`.

    async with TransactionGroup("orders", bootstrap_servers="localhost:9092") as group:
        step = await group.begin()
        async with Producer(transactional_id="orders/worker-1", transaction_group_step=step) as producer:
            await producer.begin_transaction()
            await producer.send("invoices", b"...")
            prepared = await producer.prepare_transaction()
        await group.commit(step, "batch 17", [prepared] if prepared else [])

    Steps follow one another: `begin` ends the previous step, also one of another driver. Any number of tasks of one
    event loop may share a TransactionGroup.
    """

    @takes_settings(TransactionGroupConfig)
    def __init__(self, config: TransactionGroupConfig) -> None:
        self._config = config
        self._cluster = Cluster(config, auto_create_topics=False)
        self._calls = Calls(self._cluster)
        self._life = Lifecycle(self, "transaction group", config.client_id, parts=ConnectionParts(self._cluster))

    @property
    def name(self) -> str:
        return self._config.name

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaConnectionError when no bootstrap server answers."""
        await self._life.start()

    async def stop(self) -> None:
        """Close every connection. An open step stays open. Calling it again has no effect. Calls after it raise
        IllegalStateError.
        """
        await self._life.stop()

    async def __aenter__(self) -> TransactionGroup:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def begin(self) -> GroupStep:
        """Begin the next step: abort the open transactions of the previous step, fence its members and its driver.

        The result has the token that was committed last. Raises KafkaTimeoutError (max_block_ms; try again),
        InvalidTransactionTimeout, UnsupportedVersionError when the brokers are not semel's.
        """
        self._life.check_running()
        config = self._config
        return await transaction_groups.begin(self._calls, config.name, config.owner, config.timeout_ms)

    @checked
    async def commit(self, step: GroupStep, token: str, prepared: Sequence[PreparedTransaction]) -> bool:
        """Commit the prepared transactions as one, under a token. Other open transactions of the step are aborted.

        step: what `begin` returned. token: a text that names what is committed, such as a batch; the group keeps the
        last one. prepared: what each worker's `prepare_transaction` returned.

        True: this step is committed, now or by an earlier call. False: an earlier step has committed the token, and
        nothing of this step is committed. The request is retried until it is answered. `prepared` may be empty; the
        token is stored all the same.

        Raises ProducerFenced when a newer step has begun (its message names the newer driver and the time), or when
        another producer has one of the transactional ids. Raises InvalidTxnState when the step was aborted or one of
        the transactions is not open; nothing is committed then. Raises KafkaTimeoutError (max_block_ms): call it again
        with the same token to learn the outcome. Raises ValueError for an empty token or a step of another group.
        """
        self._life.check_running()
        self._check_mine(step)
        if not token:
            raise ValueError("token='': give what is committed a name that no other step has")
        doubt = _Uncertainty()
        try:
            answer = await transaction_groups.decide(
                self._calls, step, token=token, committed=True, transactions=prepared, on_uncertain=doubt.note
            )
        except KafkaError as error:
            if doubt.is_there:
                error.extend_message(AGAIN if error.retriable else UNKNOWN_OUTCOME)
            raise
        return answer.decided_epoch == step.epoch

    @checked
    async def abort(self, step: GroupStep) -> None:
        """Abort the open transactions of the step. For a step that is over it has no effect but a log line with the
        reason.

        Raises TransactionWasCommitted when the step is committed, KafkaTimeoutError (max_block_ms; try again).
        """
        self._life.check_running()
        self._check_mine(step)
        try:
            await transaction_groups.decide(
                self._calls, step, token="", committed=False, transactions=(), on_uncertain=lambda: None
            )
        except InvalidTxnState as error:
            raise TransactionWasCommitted(error.message) from error
        except KafkaError as error:
            if not transaction_groups.is_superseded(error):
                raise
            log.info("nothing to abort: %s", error)

    @checked
    async def forget(self, step: GroupStep) -> None:
        """Make the brokers forget the group and its members at once. `step`: its last one, committed or aborted.

        For a group whose name is used for one piece of work; otherwise the brokers keep it for
        `transaction.group.expiration.ms`. Call it once the outcome is known: afterwards `commit` cannot tell it. Do not
        use the name again: its steps would be counted from 1. A group that is not known is no error.

        Raises InvalidTxnState when the step is open, ProducerFenced when a newer step has begun, KafkaTimeoutError
        (max_block_ms; try again), UnsupportedVersionError when the brokers cannot do this.
        """
        self._life.check_running()
        self._check_mine(step)
        await transaction_groups.forget(self._calls, step)

    def _check_mine(self, step: GroupStep) -> None:
        if step.group != self.name:
            raise ValueError(f"step {step.epoch} is one of transaction group {step.group!r}, not of {self.name!r}")


class _Uncertainty:
    """Whether a request without an outcome may have taken effect."""

    def __init__(self) -> None:
        self.is_there = False

    def note(self) -> None:
        self.is_there = True
