"""Safeguards of consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from semel_broker.groups.classic import state
from semel_broker.groups.classic.group import ClassicMembership
from semel_broker.groups.classic.groups import ClassicGroups
from semel_broker.groups.deadlines import Alarm
from semel_broker.groups.group import Group
from semel_broker.groups.host import GroupHost
from semel_broker.groups.kind import Kind
from semel_broker.groups.offsets.model import OffsetRecord
from semel_broker.groups.offsets.pending import PendingOffsets
from semel_broker.groups.offsets.store import OffsetStore
from semel_protocol.errors import ErrorCode, KafkaError

from sim.ablations.ablation import Seam, broker_ends, faults, safeguard
from sim.ablations.durability import POWER_LOSS_ON_SLOW_DISK
from sim.ablations.worlds import slow_load
from sim.group_control import GroupRun

CHURN = ("churn", "idempotent")
COMES_LATE = faults("hold", "late")


def forgiving(seam: Seam, name: str, forgiven: ErrorCode) -> None:
    """The check of this name accepts requests that it would refuse with this code."""
    check: Callable[..., None] = getattr(state, name)

    def forgiving_check(*args: Any) -> None:
        try:
            check(*args)
        except KafkaError as error:
            if error.code is not forgiven:
                raise

    seam.replace(state, name, forgiving_check)


@safeguard(
    "generation of OffsetCommit", "a member of an older generation cannot commit offsets", "churn", shows=COMES_LATE
)
def generation_of_commit(seam: Seam) -> None:
    forgiving(seam, "check_commit", ErrorCode.ILLEGAL_GENERATION)


@safeguard("membership of OffsetCommit", "a former member cannot commit offsets", *CHURN)
def membership_of_commit(seam: Seam) -> None:
    forgiving(seam, "check_commit", ErrorCode.UNKNOWN_MEMBER_ID)


@safeguard(
    "generation of TxnOffsetCommit",
    "a transaction does not commit inputs that were given to another member (KIP-447)",
    "pipeline",
)
def generation_in_transaction(seam: Seam) -> None:
    forgiving(seam, "check_commit_in_transaction", ErrorCode.ILLEGAL_GENERATION)


@safeguard(
    "membership of TxnOffsetCommit", "a former member cannot commit inputs in a transaction (KIP-447)", "pipeline"
)
def membership_in_transaction(seam: Seam) -> None:
    forgiving(seam, "check_commit_in_transaction", ErrorCode.UNKNOWN_MEMBER_ID)


@safeguard(
    "generations are durable before they are told",
    "a group never uses a generation number twice",
    "churn",
    "pipeline",
    shows=POWER_LOSS_ON_SLOW_DISK,
)
def generations_durable(seam: Seam) -> None:
    def hasty(self: GroupHost, group: Group, change: Any, kind: Kind) -> None:
        self.journal.write(kind.records(group, change, self.now()).rows, lambda: None, lambda error: None)
        self.carry_out(group, kind.apply(group, change, self.now()))

    seam.replace(GroupHost, "_persist", hasty)


# Offsets that are part of a transaction


@safeguard(
    "stable offsets",
    "a new owner does not start from an offset that an open transaction is about to change (KIP-447)",
    "pipeline",
)
def stable_offsets(seam: Seam) -> None:
    seam.replace(OffsetStore, "is_unstable", lambda *_: False)


@safeguard(
    "replay of pending offsets",
    "offsets of an open transaction take effect even if the broker restarts before the commit",
    "pipeline",
    shows=broker_ends,
)
def replay_of_pending(seam: Seam) -> None:
    load = OffsetStore.load
    seam.replace(OffsetStore, "load", lambda self, pending: load(self, PendingOffsets()))


@safeguard(
    "markers before the load",
    "a marker that arrives while groups are being loaded still takes effect on their offsets",
    "pipeline",
    shows=broker_ends,
    given=slow_load,
)
def markers_before_load(seam: Seam) -> None:
    ended = OffsetStore.transaction_ended

    def deaf(self: OffsetStore, *args: Any) -> None:
        if self._is_loaded:
            ended(self, *args)

    seam.replace(OffsetStore, "transaction_ended", deaf)


@safeguard("aborted offsets are dropped", "offsets of an aborted transaction never take effect", "pipeline")
def aborted_offsets(seam: Seam) -> None:
    ended = OffsetStore.transaction_ended

    def naive(self: OffsetStore, producer_id: int, commit: bool) -> None:
        ended(self, producer_id, True)

    seam.replace(OffsetStore, "transaction_ended", naive)


@safeguard(
    "deletions reach open transactions",
    "offsets whose deletion was answered do not come back when a transaction commits",
    alone=GroupRun,
)
def deletions_reach_transactions(seam: Seam) -> None:
    apply = OffsetStore.apply

    def sparing(self: OffsetStore, group_id: str, records: Iterable[OffsetRecord], position: int) -> None:
        for record in records:
            if record.committed is not None:
                apply(self, group_id, [record], position)
            elif group_id in self._groups:
                self._groups[group_id].offsets.apply(record)

    seam.replace(OffsetStore, "apply", sparing)


# Members that die amid a rebalance


@safeguard(
    "partitions that a replaced member was to revoke",
    "a static member that returns amid a cooperative rebalance leaves no partition without an owner",
    alone=GroupRun,
)
def given_up_by_replaced(seam: Seam) -> None:
    seam.replace(ClassicMembership, "given_up_by", lambda self, member: frozenset())


@safeguard(
    "joins of closed connections are dropped",
    "members that are killed while they join do not delay their group by another session timeout",
    alone=GroupRun,
)
def joins_of_closed_connections(seam: Seam) -> None:
    seam.replace(ClassicGroups, "_withdraw", lambda *_: None)


@safeguard(
    "the loop is not asked for its timers",
    "a timer of uvloop that is due at once does not end a JoinGroup, and no session is lost",
    alone=GroupRun,
)
def asked_for_timers(seam: Seam) -> None:
    schedule = Alarm._schedule

    def asking(self: Alarm) -> None:
        if self._timer is not None:
            self._timer.when()  # type: ignore[attr-defined]  # as TimerHandle of asyncio has
        schedule(self)

    seam.replace(Alarm, "_schedule", asking)
