"""Safeguards of transaction groups: of their coordinator, and of the client's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from semel._transactions.manager import Transactions
from semel_broker.coordination.journal import Journal
from semel_broker.txn import group_engine
from semel_broker.txn.expiry import Expiry
from semel_broker.txn.group_engine import GroupEngine
from semel_broker.txn.model import group_state, state
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_records import group_key_of
from semel_broker.txn.model.group_state import Decide, Decision, Members
from semel_broker.txn.model.metadata import ONGOING, TransactionMetadata
from semel_broker.txn.model.replay import Replay
from semel_storage.internal_topics import Row

from sim.ablations.ablation import Seam, broker_ends, safeguard
from sim.ablations.occasions import lost_decision

KINDS = ("groups",)


def no_timeouts(seam: Seam) -> None:
    """Nothing is aborted for being open too long: of a group nothing ever is, once its last step is decided."""
    seam.replace(Expiry, "abort_due", lambda self: None)


def lenient(transactional_id: str, epoch: int, group: TransactionGroup | None) -> TransactionGroup | None:
    """In place of `check_step`: any step will do."""
    return group


@safeguard(
    "step of InitProducerId",
    "who belongs to a step that is over is not let in",
    *KINDS,
    needless="whoever is let in can open nothing: AddPartitions and the verification of Produce ask for the step, too",
)
def step_of_init(seam: Seam) -> None:
    seam.replace(group_engine, "check_step", lenient)


@safeguard(
    "step of a member",
    "who belongs to a step that is over opens no transaction that nobody would end",
    *KINDS,
    given=no_timeouts,
)
def step_of_member(seam: Seam) -> None:
    seam.replace(group_engine, "check_step", lenient)
    seam.replace(state, "check_step", lenient)


@safeguard(
    "what is not listed is aborted",
    "attempts that nobody has listed do not hold readers up",
    *KINDS,
    given=no_timeouts,
)
def unlisted_aborted(seam: Seam) -> None:
    decide = group_state.decide

    def forgetful(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> Decision:
        listed = {name for name, _ in ask.transactions}
        return decide(group, {name: txn for name, txn in members.items() if name in listed}, ask, *more)

    seam.replace(group_state, "decide", forgetful)


@safeguard("only what is listed is committed", "of several attempts at one task one counts", *KINDS)
def only_listed(seam: Seam) -> None:
    decide = group_state.decide

    def generous(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> Decision:
        if ask.commit and group is not None:
            found = [(name, txn.identity) for name, txn in members.items() if _is_open(txn, group)]
            ask = replace(ask, transactions=found)
        return decide(group, members, ask, *more)

    seam.replace(group_state, "decide", generous)


def _is_open(txn: TransactionMetadata, group: TransactionGroup) -> bool:
    return txn.state is ONGOING and txn.group_epoch == group.epoch


@safeguard("identity in Decide", "a transaction that was begun since under the same name is not committed", *KINDS)
def identity_in_decide(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> Decision:
        found = [(name, members[name].identity if name in members else who) for name, who in ask.transactions]
        return decide(group, members, replace(ask, transactions=found), *more)

    seam.replace(group_state, "decide", naive)


@safeguard("what is not open is not committed", "a step with a hole in it is refused", *KINDS)
def open_in_decide(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> Decision:
        found = [
            (name, members[name].identity)
            for name, _ in ask.transactions
            if group is not None and name in members and _is_open(members[name], group)
        ]
        return decide(group, members, replace(ask, transactions=found), *more)

    seam.replace(group_state, "decide", naive)


@safeguard("epoch of Decide", "a driver that somebody else has taken over from decides nothing", *KINDS)
def epoch_of_decide(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> Decision:
        return decide(group, members, ask if group is None else replace(ask, epoch=group.epoch), *more)

    seam.replace(group_state, "decide", naive)


@safeguard("repeat of a token", "a batch that is done again is not committed again", *KINDS)
def repeat_of_token(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> Decision:
        if group is None:
            return decide(group, members, ask, *more)
        decision = decide(replace(group, decided_token=None), members, ask, *more)
        if decision.then is None or ask.commit:
            return decision
        kept = replace(decision.then, decided_token=group.decided_token)
        return replace(decision, then=kept, group=kept)

    seam.replace(group_state, "decide", naive)


@safeguard(
    "one decision is one append", "a crash does not come between a token and its records", *KINDS, shows=broker_ends
)
def one_append(seam: Seam) -> None:
    append = Journal.append

    def in_parts(self: Journal, rows: Sequence[Row], **more: Any) -> Any:
        if group_key_of(rows[0][0]) is None:
            return append(self, rows, **more)
        for row in rows:
            stored = append(self, [row], **more)
        return stored

    seam.replace(Journal, "append", in_parts)


@safeguard(
    "a decision is durable before it takes effect",
    "what a crash takes back has had no effect",
    *KINDS,
    occasion=lost_decision,
)
def decision_durable(seam: Seam) -> None:
    class Durable(msgspec.Struct):
        is_durable: bool = True

    async def hasty(self: GroupEngine, slot: Any, held: Any, decision: Decision) -> None:
        append = self._engine.append

        def at_once(rows: Any, **more: Any) -> Durable:
            append(rows, **more)
            return Durable()

        self._engine.append = at_once  # type: ignore[method-assign, assignment]
        try:
            await persist(self, slot, held, decision)
        finally:
            del self._engine.append

    persist = GroupEngine._persist
    seam.replace(GroupEngine, "_persist", hasty)


@safeguard(
    "groups are read back", "a coordinator that starts anew knows what was committed last", *KINDS, shows=broker_ends
)
def groups_read_back(seam: Seam) -> None:
    seam.replace(Replay, "groups", lambda self: iter(()))


@safeguard("prepare waits for its records", "what is prepared is stored", *KINDS)
def prepare_waits(seam: Seam) -> None:
    async def hasty(self: Transactions) -> Any:
        self._state.start_prepare()
        return self._state.prepared(self._manager.producer_id, self._manager.producer_epoch)

    seam.replace(Transactions, "prepare", hasty)
