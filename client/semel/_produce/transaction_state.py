"""PURE. The state of a transactional producer: its table of states, its transaction's content, the effect of errors.

Every change of state is an entry of `NEXT`. A transaction that failed in any part can only be aborted (ABORTABLE). A
producer that was fenced, or met an error it cannot recover from, is ENDED. In a step of a transaction group the
producer prepares its transaction, and the group's driver decides it.
"""

from __future__ import annotations

from enum import Enum

from semel_protocol.errors import ErrorCode

from semel.errors import (
    BrokerResponseError,
    DeletedTopicCommitError,
    IllegalOperation,
    IllegalStateError,
    InvalidTxnState,
    KafkaError,
    TransactionHasFailed,
    UnsupportedVersionError,
)
from semel.structs import GroupStep, PreparedTransaction, TopicPartition


class State(Enum):
    UNINITIALIZED = "not initialized"
    READY = "between transactions"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing a transaction"
    PREPARING = "preparing a transaction"
    PREPARED = "in a transaction that is prepared"
    ABORTABLE = "in a transaction that has failed"
    ABORTING = "aborting a transaction"
    ENDED = "ended by an error"


NEXT = {
    State.UNINITIALIZED: (State.READY, State.ENDED),
    State.READY: (State.IN_TRANSACTION, State.ENDED),
    State.IN_TRANSACTION: (State.COMMITTING, State.PREPARING, State.ABORTING, State.ABORTABLE, State.ENDED),
    # To ABORTING: the application gives up a commit without an outcome. The abort first finds that outcome.
    State.COMMITTING: (State.READY, State.ABORTABLE, State.ABORTING, State.ENDED),
    State.PREPARING: (State.PREPARED, State.ABORTABLE, State.ABORTING, State.ENDED),
    State.PREPARED: (State.ABORTING, State.ENDED),
    State.ABORTABLE: (State.ABORTING, State.ENDED),
    State.ABORTING: (State.READY, State.ENDED),
    State.ENDED: (),
}


OPEN = (State.IN_TRANSACTION, State.COMMITTING, State.PREPARING)
"""States in which records may still be in flight and nothing has failed."""


class ErrorEffect(Enum):
    """The effect of a coordinator's error code on the transaction."""

    RETRY = "try again; the application does not see the error"
    ABORT = "the transaction has failed; the producer can continue after the abort"
    RENEW = "as ABORT, and the producer needs a new epoch before its next transaction"
    FENCED = "another producer has the transactional id now"
    END = "this producer cannot continue"


VERDICT = {
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorEffect.FENCED,
    ErrorCode.PRODUCER_FENCED: ErrorEffect.FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorEffect.RENEW,
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorEffect.RENEW,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorEffect.RENEW,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorEffect.ABORT,
    ErrorCode.ILLEGAL_GENERATION: ErrorEffect.ABORT,
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorEffect.ABORT,
    ErrorCode.FENCED_INSTANCE_ID: ErrorEffect.ABORT,
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorEffect.ABORT,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorEffect.ABORT,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorEffect.ABORT,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorEffect.ABORT,
    ErrorCode.INVALID_GROUP_ID: ErrorEffect.ABORT,
    ErrorCode.INVALID_TOPIC_EXCEPTION: ErrorEffect.ABORT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorEffect.ABORT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorEffect.ABORT,
}
"""Codes that are not in this table end the producer, unless they are retriable."""


def verdict_on(error: KafkaError) -> ErrorEffect:
    """The effect on the transaction of an error from, or on the way to, a coordinator."""
    if isinstance(error, BrokerResponseError) and error.code in VERDICT:
        return VERDICT[error.code]
    if isinstance(error, (UnsupportedVersionError, DeletedTopicCommitError)):
        return ErrorEffect.ABORT
    return ErrorEffect.RETRY if error.retriable else ErrorEffect.END


class TransactionState:
    """The state of one transactional producer and the content of its transaction.

    version: the protocol version of this transaction (KIP-890).
    wanted, partitions: partitions to be added to the transaction, and added ones (version 1).
    touched: the coordinator may know the transaction.
    commit_sent: a commit was sent, so it may be committed.
    is_prepared: its group may have committed it.
    needs_new_epoch: before the next transaction, because sequences are broken or a request may arrive late.
    cause: the reason why the transaction has failed or the producer has ended.
    step: the step of its transaction group, None outside of one.
    """

    def __init__(self, transactional_id: str, step: GroupStep | None = None) -> None:
        self.transactional_id, self.step = transactional_id, step
        self.state = State.UNINITIALIZED
        self.version = 1
        self.wanted: dict[TopicPartition, None] = {}
        self.partitions: dict[TopicPartition, None] = {}
        self.groups: dict[str, None] = {}
        self.touched = self.commit_sent = self.is_prepared = self.needs_new_epoch = False
        self.cause: KafkaError | None = None

    # Calls of the application

    def check_open(self) -> None:
        """Raise IllegalOperation outside of a transaction, TransactionHasFailed, and the error that ended the
        producer.
        """
        if self.state is not State.IN_TRANSACTION:
            self.check_usable()
            raise IllegalOperation(
                f"the producer of {self.transactional_id!r} is {self.state.value}: await begin_transaction() first"
            )

    def check_not_ended(self) -> None:
        """Raise the error that ended the producer."""
        if self.state is State.ENDED:
            raise self.end_error()

    def check_usable(self) -> None:
        """Raise TransactionHasFailed when the transaction must be aborted, and the error that ended the producer."""
        self.check_not_ended()
        if self.state is State.ABORTABLE:
            raise self.failure()

    def begin(self, version: int) -> None:
        """Begin a transaction under this version of the protocol."""
        self.check_usable()
        self._expect(State.READY, "begin_transaction()")
        self._to(State.IN_TRANSACTION)
        self.version = version
        assert not self.needs_new_epoch

    def check_commits_itself(self, call: str) -> None:
        """Raise IllegalOperation in a step of a transaction group."""
        if self.step is not None:
            raise IllegalOperation(
                f"{call}: the transactions of {self.transactional_id!r} commit with those of its group: await "
                "prepare_transaction(), and give its result to the driver, for TransactionGroup.commit()"
            )

    def start_commit(self) -> None:
        self.check_commits_itself("commit_transaction()")
        self.check_usable()
        self._expect(State.IN_TRANSACTION, "commit_transaction()")
        self._to(State.COMMITTING)

    def start_prepare(self) -> None:
        """Begin to prepare. Also allowed for a transaction that is preparing or prepared."""
        if self.step is None:
            raise IllegalOperation(
                f"prepare_transaction(): the producer of {self.transactional_id!r} has no step of a transaction group: "
                "give it one (transaction_group_step=, join()), or commit_transaction()"
            )
        self.check_usable()
        if self.state not in (State.PREPARING, State.PREPARED):
            self._expect(State.IN_TRANSACTION, "prepare_transaction()")
            self._to(State.PREPARING)

    def start_abort(self) -> None:
        """Begin to abort. Also allowed for a transaction that failed, that is committing, or that is prepared."""
        self.check_not_ended()
        if self.state not in (State.COMMITTING, State.PREPARING, State.PREPARED, State.ABORTABLE):
            self._expect(State.IN_TRANSACTION, "abort_transaction()")
        self._to(State.ABORTING)

    # Events

    def initialized(self) -> None:
        """The coordinator gave a producer id or a new epoch: earlier requests are fenced."""
        if self.state is State.UNINITIALIZED:
            self._to(State.READY)
        self.needs_new_epoch = False

    def admits(self, partition: TopicPartition) -> bool:
        """Whether records may be sent to the partition now. In version 1 the coordinator must have added it first."""
        if self.state not in OPEN:
            return False
        if self.version >= 2:
            self.touched = True
            return True
        if partition in self.partitions:
            return True
        self.wanted[partition] = None
        return False

    def enrolled(self, partitions: list[TopicPartition]) -> None:
        """The coordinator has added these partitions to the transaction (version 1)."""
        for partition in partitions:
            self.wanted.pop(partition, None)
            self.partitions[partition] = None

    def fail(self, error: KafkaError, *, needs_new_epoch: bool = False) -> None:
        """A part of the transaction failed. The first failure is the cause."""
        self.needs_new_epoch = self.needs_new_epoch or needs_new_epoch
        if self.state in OPEN:
            self._to(State.ABORTABLE)
            self.commit_sent = False
            self.cause = error
            self.wanted.clear()

    def prepared(self, producer_id: int, producer_epoch: int) -> PreparedTransaction | None:
        """Every record is stored. None when nothing was sent."""
        if self.state is State.PREPARING:
            self._to(State.PREPARED)
        assert self.state is State.PREPARED
        assert self.step is not None
        if not self.touched:
            return None
        self.is_prepared = True
        return PreparedTransaction(self.transactional_id, producer_id, producer_epoch, self.step.epoch)

    def end(self, error: KafkaError) -> None:
        """End the producer: it cannot continue."""
        if self.state is not State.ENDED:
            self._to(State.ENDED)
            self.cause = error

    def closed(self, *, new_epoch: bool) -> None:
        """The transaction is committed or aborted. new_epoch: the answer carried a new epoch."""
        self._to(State.READY)
        self.wanted.clear()
        self.partitions.clear()
        self.groups.clear()
        self.touched = self.commit_sent = self.is_prepared = False
        self.needs_new_epoch = self.needs_new_epoch and not new_epoch
        self.cause = None

    @property
    def must_abort(self) -> bool:
        """Whether nothing more may be sent or retried in this transaction."""
        return self.state in (State.ABORTABLE, State.ABORTING, State.ENDED)

    def failure(self) -> TransactionHasFailed:
        """The exception of a transaction that can only be aborted."""
        made = TransactionHasFailed(f"the transaction of {self.transactional_id!r} has failed: {self.cause}")
        made.__cause__ = self.cause
        return made

    def end_error(self) -> KafkaError:
        """The error that ended the producer."""
        assert self.cause is not None
        return self.cause.with_traceback(None)

    def _expect(self, state: State, call: str) -> None:
        if self.state is not state:
            raise IllegalStateError(
                f"{call}: the producer of {self.transactional_id!r} is {self.state.value}, not {state.value}"
            )

    def _to(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def is_not_ongoing(error: KafkaError) -> bool:
    """Whether the coordinator says that no such transaction is open (INVALID_TXN_STATE)."""
    return isinstance(error, InvalidTxnState)
