"""PURE: The metadata of one transaction group, and the table of its states.

A transaction group is a name under which transactions of many producers commit as one. Its members are the
transactional ids `<group>/<member>` that were initialised under one of its steps. A step reaches from its begin to its
decision; the group's epoch counts them. See docs/decisions/0015-transaction-groups.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import group_of
from semel_storage.internal_topics import TRANSACTION_GROUP_STATES

from semel_broker.txn.model.identity import ClientName
from semel_broker.txn.model.ledger import moment_of


class TransactionGroupState(IntEnum):
    """The state of the group's last step. The values are those of its records; DEAD is stored as a tombstone."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2
    DEAD = 3

    @property
    def label(self) -> str:
        """The name on the wire."""
        return (*TRANSACTION_GROUP_STATES, "Dead")[self]


OPEN, COMMITTED, ABORTED, DEAD = TransactionGroupState

NEXT: Mapping[TransactionGroupState, tuple[TransactionGroupState, ...]] = {
    OPEN: (OPEN, COMMITTED, ABORTED),
    COMMITTED: (OPEN, DEAD),
    ABORTED: (OPEN, DEAD),
    DEAD: (),
}
"""All transitions. To OPEN: the next step. An expired open step is aborted before the group is forgotten."""


class TransactionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group at one moment; a record of `__transaction_state`. Times are wall clock, in ms.

    `epoch`: the number of its last step; `owner`: who began that, in words; `client`: as the connection has it;
    `timeout_ms`: of the step's transactions; `decided_*`: the last step that was committed, "" never being a token;
    `note`: how the last step ended, where that was not its driver's doing.
    """

    name: str
    epoch: int
    state: TransactionGroupState = OPEN
    owner: str = ""
    client: ClientName = ClientName()
    timeout_ms: int
    begin_ms: int
    last_update_ms: int
    decided_token: str | None = None
    decided_epoch: int = -1
    note: str = ""

    def is_open_in(self, epoch: int) -> bool:
        """Whether `epoch` is the step that is open."""
        return self.state is OPEN and self.epoch == epoch

    @property
    def begun(self) -> str:
        """A clause that names the owner of the step, and the time of its begin."""
        owner = f"{self.owner}, " if self.owner else ""
        return f"step {self.epoch} was begun at {moment_of(self.begin_ms)} by {owner}{self.client}"

    @property
    def ended(self) -> str:
        """A clause on how the step ended, and when."""
        assert self.state is not OPEN, self
        how = f"committed as {self.decided_token!r}" if self.state is COMMITTED else "aborted"
        note = f": {self.note}" if self.note else ""
        return f"step {self.epoch} was {how} at {moment_of(self.last_update_ms)}{note}"


def check_successor(before: TransactionGroup | None, then: TransactionGroup) -> None:
    """Assert that `then` may follow `before`: a bug of ours otherwise."""
    if before is None:
        assert then.state is OPEN, then
        return
    assert then.name == before.name, (before, then)
    assert then.state in NEXT[before.state], f"{before.state} -> {then.state}"
    # Only a begin counts the step on, or else the driver of an earlier one could decide it.
    assert then.epoch == before.epoch + (then.state is OPEN), (before, then)
    assert then.decided_epoch >= before.decided_epoch, (before, then)


def check_step(transactional_id: str, epoch: int, group: TransactionGroup | None) -> TransactionGroup:
    """`group`, whose step `epoch` is open. Raises PRODUCER_FENCED, which names the owner, the time and the reason."""
    if group is not None and group.is_open_in(epoch):
        return group
    why = "the group is not known: it was never begun, or is forgotten" if group is None else _why_not(epoch, group)
    raise KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{transactional_id}: step {epoch} of transaction group {group_of(transactional_id)!r} is not open: {why}",
    )


def fenced(group: TransactionGroup, epoch: int) -> KafkaError:
    """The refusal for a driver whose step is over."""
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"step {epoch} of transaction group {group.name!r} is over: {_why_not(epoch, group)}",
    )


def _why_not(epoch: int, group: TransactionGroup) -> str:
    if epoch == group.epoch:
        return group.ended
    return group.begun if epoch < group.epoch else f"its last one is step {group.epoch}"
