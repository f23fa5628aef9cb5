"""PURE: The metadata of one transactional id, and the table of its states."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec
from semel_storage.internal_topics import TRANSACTION_STATES

from semel_broker.txn.model.identity import NO_IDENTITY, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason, Fences, who_fenced

TIMEOUT_NEVER_MS = 2**31 - 1
"""The timeout of a producer that takes part in a two-phase commit (KIP-939): its transactions never time out."""

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """The values are those of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name on the wire (`PrepareCommit`)."""
        return TRANSACTION_STATES[self]


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = (
    TransactionState
)

_BEGINS_OR_EXPIRES = (EMPTY, ONGOING, PREPARE_ABORT, DEAD)

NEXT: dict[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: _BEGINS_OR_EXPIRES,
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: _BEGINS_OR_EXPIRES,
    COMPLETE_ABORT: _BEGINS_OR_EXPIRES,
    PREPARE_EPOCH_FENCE: (PREPARE_ABORT,),
    DEAD: (),
}
"""All transitions. After PREPARE_* the outcome does not change. From EMPTY and COMPLETE_* to PREPARE_ABORT: with
transaction version 2 a producer may abort what it has not begun, to have its epoch bumped. PREPARE_EPOCH_FENCE is
another coordinator's: here the fence and the abort are decided in one record."""

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
BETWEEN = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""No transaction is open and none is being ended."""


_NO_PARTITIONS: Mapping[TopicPartition, None] = {}


class TransactionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One transactional id at one moment; a record of `__transaction_state`. Times are wall clock.

    `producer_id`, `producer_epoch`: of the transaction and its markers. `next_producer_*`: what the producer goes on
    with, where that differs: the epochs of the id are used up, or a new instance keeps a prepared transaction
    (KIP-939). `last_producer_epoch`: what the producer had before its own last bump, so that it may ask again; -1
    after a fence. `owner`: who initialised the producer. `client_transaction_version`: of the open or last
    transaction (2: the epoch is bumped at each end). `group_epoch`: the step of its transaction group under which the
    producer was initialised; -1 for an ordinary one.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = EMPTY
    last_producer_epoch: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    partitions: Mapping[TopicPartition, None] = _NO_PARTITIONS
    last_update_ms: int
    start_ms: int = -1
    client_transaction_version: int = 0
    owner: ClientName = ClientName()
    fences: Fences = ()
    group_epoch: int = -1

    @property
    def identity(self) -> ProducerIdentity:
        """The identity that the producer has to present."""
        if self.next_producer_id >= 0:
            return ProducerIdentity(self.next_producer_id, max(self.next_producer_epoch, 0))
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def last_identity(self) -> ProducerIdentity:
        """The identity before the producer's own last bump, whose answer may be lost.

        NO_IDENTITY if the producer was fenced since.
        """
        now = self.identity
        if self.last_producer_epoch < 0:
            return NO_IDENTITY
        if now.epoch > 0:
            return ProducerIdentity(now.producer_id, self.last_producer_epoch)
        before = self.producer_id if self.next_producer_id >= 0 else self.previous_producer_id
        return ProducerIdentity(before, self.last_producer_epoch)

    @property
    def timed_out(self) -> ProducerIdentity:
        """The identity whose transaction timed out and was aborted, if nothing has happened since; else NO_IDENTITY."""
        last = self.fences[-1] if self.fences else None
        if last is None or last.reason is not FenceReason.TIMED_OUT or last.new != self.identity:
            return NO_IDENTITY
        return last.old if self.state in (PREPARE_ABORT, COMPLETE_ABORT) else NO_IDENTITY

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are being written."""
        return self.state in PREPARED

    @property
    def is_two_phase(self) -> bool:
        """Whether an external coordinator decides the outcome (KIP-939); no timeout ends the transaction."""
        return self.timeout_ms == TIMEOUT_NEVER_MS

    @property
    def is_member(self) -> bool:
        """Whether its transactions commit with others, as a step of their group."""
        return self.group_epoch >= 0

    @property
    def keeps_prepared(self) -> bool:
        """Whether an instance has taken over a prepared transaction: it may end it, and add nothing to it."""
        return self.state is ONGOING and self.next_producer_id >= 0

    def holds(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether the open transaction of `producer_id` in `partition` is this one."""
        return producer_id == self.producer_id and partition in self.partitions

    def why_fenced(self, producer: ProducerIdentity) -> str:
        """A clause for `producer`, whose epoch is over."""
        return who_fenced(self.fences, producer) or f"the coordinator knows {self.identity}"
