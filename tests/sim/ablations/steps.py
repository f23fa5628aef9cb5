"""Safeguards of transaction groups, in the coordinator and in the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from semel._transactions.manager import ProducerTransactions
from semel_broker.coordination.journal import Journal
from semel_broker.txn import group_engine
from semel_broker.txn.expiry import Expiry
from semel_broker.txn.group_engine import GroupEngine
from semel_broker.txn.model import group_state, state
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_records import group_key_of
from semel_broker.txn.model.group_state import Decide, Members, TransactionGroupDecision
from semel_broker.txn.model.metadata import ONGOING, TransactionMetadata
from semel_broker.txn.model.replay import TransactionReplay
from semel_storage.internal_topics import Row

from sim.ablations.ablation import Seam, broker_ends, safeguard
from sim.ablations.occasions import lost_decision

KINDS = ("groups",)


def no_timeouts(seam: Seam) -> None:
    """The coordinator aborts no transaction because of a timeout."""
    seam.replace(Expiry, "abort_due", lambda self: None)


def lenient(transactional_id: str, epoch: int, group: TransactionGroup | None) -> TransactionGroup | None:
    """Replace `check_step`: accept any step."""
    return group


@safeguard(
    "step of InitProducerId",
    "a producer of a finished step is refused",
    *KINDS,
    needless="it cannot open a transaction: AddPartitions and the verification of Produce check the step, too",
)
def step_of_init(seam: Seam) -> None:
    seam.replace(group_engine, "check_step", lenient)


@safeguard(
    "step of a member",
    "a producer of a finished step cannot open a transaction that is never ended",
    *KINDS,
    given=no_timeouts,
)
def step_of_member(seam: Seam) -> None:
    seam.replace(group_engine, "check_step", lenient)
    seam.replace(state, "check_step", lenient)


@safeguard(
    "unlisted transactions are aborted",
    "attempts that the driver did not list do not block readers",
    *KINDS,
    given=no_timeouts,
)
def unlisted_aborted(seam: Seam) -> None:
    decide = group_state.decide

    def forgetful(
        group: TransactionGroup | None, members: Members, ask: Decide, *more: Any
    ) -> TransactionGroupDecision:
        listed = {name for name, _ in ask.transactions}
        return decide(group, {name: txn for name, txn in members.items() if name in listed}, ask, *more)

    seam.replace(group_state, "decide", forgetful)


@safeguard("only listed transactions are committed", "of several attempts at one task only one is committed", *KINDS)
def only_listed(seam: Seam) -> None:
    decide = group_state.decide

    def generous(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> TransactionGroupDecision:
        if ask.commit and group is not None:
            found = [(name, txn.identity) for name, txn in members.items() if _is_open(txn, group)]
            ask = replace(ask, transactions=found)
        return decide(group, members, ask, *more)

    seam.replace(group_state, "decide", generous)


def _is_open(txn: TransactionMetadata, group: TransactionGroup) -> bool:
    return txn.state is ONGOING and txn.group_epoch == group.epoch


@safeguard("identity in Decide", "a newer transaction of the same transactional id is not committed", *KINDS)
def identity_in_decide(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> TransactionGroupDecision:
        found = [(name, members[name].identity if name in members else who) for name, who in ask.transactions]
        return decide(group, members, replace(ask, transactions=found), *more)

    seam.replace(group_state, "decide", naive)


@safeguard("only open transactions are committed", "a step with a missing transaction is refused", *KINDS)
def open_in_decide(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> TransactionGroupDecision:
        found = [
            (name, members[name].identity)
            for name, _ in ask.transactions
            if group is not None and name in members and _is_open(members[name], group)
        ]
        return decide(group, members, replace(ask, transactions=found), *more)

    seam.replace(group_state, "decide", naive)


@safeguard("epoch of Decide", "a driver that was replaced decides nothing", *KINDS)
def epoch_of_decide(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> TransactionGroupDecision:
        return decide(group, members, ask if group is None else replace(ask, epoch=group.epoch), *more)

    seam.replace(group_state, "decide", naive)


@safeguard("repeat of a token", "a batch that is processed again is not committed again", *KINDS)
def repeat_of_token(seam: Seam) -> None:
    decide = group_state.decide

    def naive(group: TransactionGroup | None, members: Members, ask: Decide, *more: Any) -> TransactionGroupDecision:
        if group is None:
            return decide(group, members, ask, *more)
        decision = decide(replace(group, decided_token=None), members, ask, *more)
        if decision.then is None or ask.commit:
            return decision
        kept = replace(decision.then, decided_token=group.decided_token)
        return replace(decision, then=kept, group=kept)

    seam.replace(group_state, "decide", naive)


@safeguard(
    "one decision is one append", "a crash cannot leave a part of a decision in the log", *KINDS, shows=broker_ends
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
    "a decision that a crash removes has had no effect",
    *KINDS,
    occasion=lost_decision,
)
def decision_durable(seam: Seam) -> None:
    class Durable(msgspec.Struct):
        is_durable: bool = True

    async def hasty(self: GroupEngine, slot: Any, held: Any, decision: TransactionGroupDecision) -> None:
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


@safeguard("groups are read back", "a restarted coordinator knows the last committed token", *KINDS, shows=broker_ends)
def groups_read_back(seam: Seam) -> None:
    seam.replace(TransactionReplay, "groups", lambda self: iter(()))


@safeguard("prepare waits for its records", "all records of a prepared transaction are stored", *KINDS)
def prepare_waits(seam: Seam) -> None:
    async def hasty(self: ProducerTransactions) -> Any:
        self._state.start_prepare()
        return self._state.prepared(self._manager.producer_id, self._manager.producer_epoch)

    seam.replace(ProducerTransactions, "prepare", hasty)
