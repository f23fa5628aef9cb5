"""PURE: The fence ledger: each bump that fenced a producer, with its cause, time and reason.

Other brokers tell their users "there is a newer producer, or it has expired". This broker records each bump of an epoch
that fences a producer: with the transaction's record, in DescribeTransactions, in the log, and in the error that the
fenced producer gets. The ledger leaves out the bump at each end of a transaction (KIP-890), which fences no producer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from semel_broker.coordination.lru_table import LruTable
from semel_broker.txn.model.identity import NO_IDENTITY, ClientName, ProducerIdentity

FENCES_KEPT = 16
"""Per transactional id; older ones are dropped."""
EXPIRED_KEPT = 1_000
"""How many expired transactional ids are kept, so that an error can name the reason."""


class FenceReason(IntEnum):
    """Why an epoch was bumped. The values are persisted: add, never renumber."""

    NEW_INSTANCE = 0
    TIMED_OUT = 1
    ADMIN = 2
    EXPIRED = 3
    EPOCH_EXHAUSTED = 4
    FAILOVER = 5
    RESUMED = 6
    GROUP_BEGUN = 7
    GROUP_DECIDED = 8


WHY = {
    FenceReason.NEW_INSTANCE: "a new producer with this transactional.id was initialised",
    FenceReason.TIMED_OUT: "its transaction was open for longer than its transaction.timeout.ms",
    FenceReason.ADMIN: "an operator ended it",
    FenceReason.EXPIRED: "the transactional.id was not used for transactional.id.expiration.ms",
    FenceReason.EPOCH_EXHAUSTED: "the producer epochs of its producer id were used up",
    FenceReason.FAILOVER: "another coordinator had begun to fence it",
    FenceReason.RESUMED: "the producer itself asked for a new epoch to recover from an error",
    FenceReason.GROUP_BEGUN: "a new step of its transaction group was begun",
    FenceReason.GROUP_DECIDED: "the step of its transaction group was decided, and its transaction not committed",
}


class FenceRecord(msgspec.Struct, frozen=True):
    """One bump from `old` to `new`; `new` is NO_IDENTITY if the id is forgotten.

    `by`: the client or broker that caused it. `at_ms`: wall clock. `note`: the text of an operator, or by how much a
    limit was exceeded.
    """

    reason: FenceReason
    at_ms: int
    by: ClientName = ClientName()
    note: str = ""
    old: ProducerIdentity = NO_IDENTITY
    new: ProducerIdentity = NO_IDENTITY

    def of(self, old: ProducerIdentity, new: ProducerIdentity) -> FenceRecord:
        """This line of the ledger, with the identities before and after."""
        return replace(self, old=old, new=new)

    @property
    def facts(self) -> dict[str, object]:
        """The line for machines: fields of a line of the broker's log."""
        return {
            "reason": self.reason.name.lower(),
            "old_producer_id": self.old.producer_id,
            "old_epoch": self.old.epoch,
            "new_producer_id": self.new.producer_id,
            "new_epoch": self.new.epoch,
            "by": str(self.by),
            "note": self.note,
        }

    @property
    def text(self) -> str:
        """The line as one sentence."""
        moment = moment_of(self.at_ms)
        moved = f"epoch {self.old.epoch} gave way to epoch {self.new.epoch}" if self.new else f"{self.old} was dropped"
        if self.new and self.new.producer_id != self.old.producer_id:
            moved += f" of producer id {self.new.producer_id}"
        note = f"; {self.note}" if self.note else ""
        return f"{moved} at {moment} because {WHY[self.reason]} (by {self.by}{note})"


Fences = tuple[FenceRecord, ...]


def moment_of(at_ms: int) -> str:
    """A moment of the wall clock for people."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def noted(fences: Fences, record: FenceRecord) -> Fences:
    """The ledger with one more line, the oldest dropped beyond `FENCES_KEPT`."""
    return (*fences[-(FENCES_KEPT - 1) :], record)


def continues_last(fences: Fences, record: FenceRecord, *, began_ms: int) -> bool:
    """Whether `record` is the second bump of one cause: the first one aborted a transaction that began at `began_ms`.

    Between both, no producer had the identity that the last line moved to: that transaction is older than the line.
    """
    if not fences:
        return False
    last = fences[-1]
    same_cause = (last.reason, last.by, last.note) == (record.reason, record.by, record.note)
    return same_cause and last.new == record.old and began_ms < last.at_ms


def with_last_moved(fences: Fences, new: ProducerIdentity) -> Fences:
    """The ledger whose last line ends with the identity `new`."""
    return (*fences[:-1], replace(fences[-1], new=new))


def who_fenced(fences: Fences, producer: ProducerIdentity) -> str:
    """The line of the ledger that fenced `producer`, as text; "" if there is none."""
    for fence in fences:  # the oldest bump past its epoch is the one that fenced it
        if fence.old.producer_id == producer.producer_id and fence.old.epoch >= producer.epoch:
            return fence.text
    return ""


class ExpiredIds:
    """The last transactional ids that have expired. In memory only: their records are gone."""

    def __init__(self, kept: int = EXPIRED_KEPT) -> None:
        self._fences: LruTable[str, Fences] = LruTable(kept)

    def add(self, transactional_id: str, fences: Fences) -> None:
        self._fences.put(transactional_id, fences)

    def get(self, transactional_id: str) -> Fences:
        """The ledger as it was when the id expired, the expiry its last line; empty for an id not known."""
        return self._fences.get(transactional_id) or ()
