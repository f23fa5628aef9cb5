"""Safeguards of replication: acknowledged records survive the loss of their leader, and replicas are equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from semel._produce.sequences import Sequences
from semel_broker.cluster import elections
from semel_broker.cluster.controller import Controller
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.image import PartitionView
from semel_broker.cluster.records import PartitionState
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Change, Expect
from semel_broker.partitions.partition import Partition, Role
from semel_broker.partitions.refused_batches import RefusedBatches
from semel_broker.partitions.replicas import Replicas
from semel_broker.replication import sessions
from semel_broker.replication.fetcher import Fetcher
from semel_broker.replication.followed import Followed
from semel_broker.replication.isr import IsrKeeper
from semel_broker.replication.sessions import FetchSession, Watched
from semel_storage.log.durability import Steps
from semel_storage.log.log import Log
from semel_storage.log.snapshot import Snapshots
from semel_storage.producers import producers
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.producers.producers import MarkerPlace, ProducerState

from sim.ablations.ablation import Cut, Seam, both, faults, safeguard
from sim.ablations.occasions import late_marker, late_news, long_absence, parted_logs
from sim.ablations.worlds import changing_leaders, clients_that_keep_epochs
from sim.control import ControlRun
from sim.offline import OfflineRun
from sim.plan import RunPlan

DAY_MS = 86_400_000

of_three = partial(safeguard, brokers=3)

leaders_end = faults(
    "kill broker",
    "power loss",
    "kill amid changes",
    "power loss amid changes",
    "kill some",
    "power loss of some",
    "kill by turns",
    "power loss by turns",
    "pause broker",
    "cut peers",
    "store down",
)
"""Faults after which another broker becomes the leader."""
power_fails = faults("power loss", "power loss amid changes", "power loss of some", "power loss by turns")


def fsync(plan: RunPlan) -> bool:
    return plan.settings.get("durability") != "os"


# --- commits ---


@of_three(
    "high watermark by the ISR", "a record is committed only when all replicas in sync have it", shows=leaders_end
)
def _(seam: Seam) -> None:
    def own(self: Replicas, own_offset: int, present: int, *, isr_min: int) -> int:
        return max(present, own_offset)

    seam.replace(Replicas, "high_watermark", own)


@of_three(
    "joining replicas count",
    "a replica that may be elected as soon as the store accepts it has all committed records",
    shows=leaders_end,
)
def _(seam: Seam) -> None:
    seam.replace(Replicas, "propose", lambda self, isr: None)


@of_three(
    "followers say what they synced",
    "no power loss removes a committed record from a replica in sync",
    shows=both(fsync, power_fails),
)
def _(seam: Seam) -> None:
    async def settle(self: Fetcher) -> None:
        pass

    seam.replace(Partition, "fetch_offset", property(lambda self: self.end_offset))
    seam.replace(Fetcher, "_settle", settle)


@of_three("the leader syncs, too", "committed records are durable on the leader", shows=both(fsync, power_fails))
def _(seam: Seam) -> None:
    high_watermark = Replicas.high_watermark

    def of_followers(self: Replicas, own_offset: int, present: int, *, isr_min: int) -> int:
        known = [offset for replica, offset in self.offsets.items() if replica in self.isr]
        return high_watermark(self, max(own_offset, *known, 0) if known else own_offset, present, isr_min=isr_min)

    seam.replace(Replicas, "high_watermark", of_followers)


@of_three("min ISR", "acknowledged records survive the permanent loss of one broker", shows=leaders_end)
def _(seam: Seam) -> None:
    seam.replace(Partition, "_in_sync_min", lambda self, log, replicas: 1)


# --- logs that diverge ---


def _believe(self: FetchSession, row: Watched, partition: Partition) -> None:
    """Accept the offset that a follower reports without a check of its epoch."""
    row.is_claimed = True
    row.offset = min(row.offset, partition.end_offset)
    self._note_replica(row, partition, self._world.monotonic())


@of_three(
    "diverging epochs are looked for",
    "a follower has the same records as its leader, not only as many",
    shows=leaders_end,
)
def _(seam: Seam) -> None:
    seam.replace(FetchSession, "_claim", _believe)


@of_three("truncation by epoch", "committed records survive two changes of leader (KIP-101)", shows=leaders_end)
def _(seam: Seam) -> None:
    add = Fetcher.add

    def truncate_first(self: Fetcher, partition: Partition) -> None:
        if partition.role is Role.FOLLOWER and partition.is_open:
            partition.truncate_to(min(partition.high_watermark, partition.end_offset))
        add(self, partition)

    seam.replace(Fetcher, "add", truncate_first)
    seam.replace(FetchSession, "_claim", _believe)


@of_three(
    "answers of an old epoch are dropped",
    "a follower appends nothing that a former leader sent",
    given=changing_leaders,
    occasion=late_news,
    needless="the next fetch names the epoch of the last batch that an old answer brought; batches that the leader "
    "does not have are truncated before they count",
)
def _(seam: Seam) -> None:
    append_replicated = Partition.append_replicated

    def append(self: Partition, data: bytes, *, leader_epoch: int, **told: int) -> None:
        append_replicated(self, data, leader_epoch=self.leader_epoch, **told)

    seam.replace(Partition, "append_replicated", append)
    seam.replace(Followed, "is_expecting", property(lambda self: self.partition.role is Role.FOLLOWER))


@of_three(
    "leader epoch of fetches",
    "leader and follower agree on the leader epoch",
    given=changing_leaders,
    occasion=late_news,
)
def _(seam: Seam) -> None:
    seam.replace(Partition, "check_leader_epoch", lambda self, epoch: None)


@of_three(
    "producers are cut with the log",
    "after a truncation, the producer state matches the records in the log",
    shows=leaders_end,
)
def _(seam: Seam) -> None:
    truncation = Log.truncation

    def keeping(self: Log, offset: int) -> Steps[None]:
        known = ProducerTable(self.producers.all(), self.producers.decided)
        yield from truncation(self, offset)
        self.producers = known

    seam.replace(Log, "truncation", keeping)


@of_three(
    "coordinator epoch of markers",
    "a late marker does not end the next transaction",
    "transactional",
    "pipeline",
    given=clients_that_keep_epochs,
    occasion=late_marker,
)
def _(seam: Seam) -> None:
    check_marker = producers.check_marker

    def check(
        state: ProducerState | None, producer_epoch: int, coordinator_epoch: int, is_commit: bool
    ) -> MarkerPlace | None:
        known = -1 if state is None else state.coordinator_epoch
        return check_marker(state, producer_epoch, max(coordinator_epoch, known), is_commit)

    seam.replace(producers, "check_marker", check)


# --- the ISR ---


@of_three(
    "in sync from the epoch's start",
    "a replica that joins the ISR has the records that were committed in older epochs",
    shows=leaders_end,
)
def _(seam: Seam) -> None:
    def caught_up(self: Replicas, high_watermark: int, now_ms: int, lag_max_ms: int) -> list[tuple[int, int]]:
        return [
            (each, follower.broker_epoch)
            for each, follower in self._followers.items()
            if each not in self.isr and follower.offset >= high_watermark and now_ms - follower.fetched_ms <= lag_max_ms
        ]

    seam.replace(Replicas, "caught_up", caught_up)


@of_three(
    "broker epoch of joining replicas",
    "a restarted broker does not join the ISR because of its state before the restart",
    shows=leaders_end,
)
def _(seam: Seam) -> None:
    transact = IsrKeeper._transact

    async def without_registrations(self: IsrKeeper, expects: list[Expect], puts: list[Any]) -> int | None:
        return await transact(self, [each for each in expects if not each.key.startswith("brokers/")], puts)

    seam.replace(IsrKeeper, "_transact", without_registrations)
    seam.replace(IsrKeeper, "_may_join", lambda self, replica, epoch, view: True)


# --- leadership ---


@of_three("leaders from the ISR", "a leader has all committed records", shows=leaders_end)
def _(seam: Seam) -> None:
    def settled(view: PartitionView, brokers: BrokerStates) -> PartitionState:
        state = view.state
        live = [node_id for node_id in view.replicas if node_id in brokers.live]
        if state.leader in live or not live:
            return state
        return PartitionState(live[0], state.leader_epoch + 1, [live[0]])

    seam.replace(elections, "settled", settled)


@of_three(
    "admission comes last",
    "a restarted broker does not act on its leaderships and ISR places from before the restart",
    alone=ControlRun,
)
def _(seam: Seam) -> None:
    decide = Controller._decide

    def hasty(self: Controller) -> Sequence[Step]:
        return self._admit(BrokerStates.of(self._feed.image)) or decide(self)

    seam.replace(Controller, "_decide", hasty)


@of_three(
    "fencing of controllers",
    "a replaced controller decides nothing",
    alone=ControlRun,
    needless="each step also expects the state that it is based on: the state of the partition, and the registration "
    "of the broker that it elects or admits; of two steps that conflict the store refuses one",
)
def _(seam: Seam) -> None:
    transact = Controller._transact

    async def unfenced(self: Controller, expects: Sequence[Expect], changes: Sequence[Change]) -> bool:
        kept = [each for each in expects if each.key != "controller" or not each.revision]
        return await transact(self, kept, changes)

    seam.replace(Controller, "_transact", unfenced)


@of_three("the lease", "a broker does not lead after its lease has run out", alone=ControlRun)
def _(seam: Seam) -> None:
    seam.replace(Registration, "is_valid", lambda self: self._admitted is not None)


# --- the first batches of a producer ---


def _eager_clients(seam: Seam) -> None:
    """A new producer pipelines its first batches, as other clients do."""
    seam.replace(Sequences, "go_alone", property(lambda self: False))


def _forgetful(seam: Seam) -> None:
    """A broker accepts later batches of a producer after it refused one."""
    seam.replace(RefusedBatches, "note", lambda self, place, header: None)


def with_changing_leaders(cut: Cut) -> Cut:
    """`changing_leaders` and this cut together."""

    def both_cuts(seam: Seam) -> None:
        changing_leaders(seam)
        cut(seam)

    return both_cuts


of_new_producers = partial(of_three, occasion=late_news)

of_new_producers(
    "refused batches come first",
    "a new producer's first batches are stored in order, even if the leader changes between them",
    "idempotent",
    given=with_changing_leaders(_eager_clients),
)(_forgetful)

of_new_producers(
    "the first batch goes alone",
    "the same, with brokers that accept any sequence of a producer that they do not know",
    "idempotent",
    given=with_changing_leaders(_forgetful),
)(_eager_clients)


# --- retention ---


@of_three(
    "producers outlive their records on all replicas",
    "a replica that begins anew at the leader's log start knows the producers of deleted records",
    "retention",
)
def _(seam: Seam) -> None:
    seam.replace(Partition, "producer_snapshot", lambda self: b"")


@of_three(
    "snapshots at the log start are durable",
    "a power loss does not forget the producers of deleted records",
    "retention",
    shows=power_fails,
)
def _(seam: Seam) -> None:
    write = Snapshots.write

    def write_without_sync(self: Snapshots, *given: Any, **named: Any) -> None:
        write(self, *given, **{**named, "durable": False})

    seam.replace(Snapshots, "write", write_without_sync)


@of_three(
    "logs of unknown epochs begin anew",
    "a replica forgets the producer of a record that the leader never had at a deleted offset",
    "retention",
    occasion=parted_logs,
)
def _(seam: Seam) -> None:
    seam.replace(sessions, "_is_unknown_below_start", lambda row, partition: False)


# --- compaction ---


def short_lived_tombstones(plan: RunPlan) -> bool:
    """Whether a topic removes its tombstones at most one second after their first compaction."""
    topics = [topic for workload in plan.workloads for topic in workload.topics]
    return any(int(topic.configs.get("delete.retention.ms", DAY_MS)) <= 1_000 for topic in topics)


@of_three(
    "deletions wait for all replicas",
    "compaction removes a tombstone or marker only when all replicas have it",
    "compacted",
    shows=short_lived_tombstones,
    occasion=long_absence,
)
def impatient_deletions(seam: Seam) -> None:
    seam.replace(Partition, "held_by_all", property(lambda self: self.high_watermark))


@of_three(
    "partitions that go offline are told",
    "another replica leads a partition whose files its leader cannot use any more",
    alone=OfflineRun,
)
def offline_in_secret(seam: Seam) -> None:
    seam.replace(Registration, "offline_changed", lambda self: None)
