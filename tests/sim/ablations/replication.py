"""Safeguards of replication: what was acknowledged survives its leader, and replicas are the same."""

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
from semel_broker.replication.fetcher import Fetcher
from semel_broker.replication.followed import Followed
from semel_broker.replication.isr import IsrKeeper
from semel_broker.replication.sessions import FetchSession, Watched
from semel_storage.log.log import Log
from semel_storage.producers import producers
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.producers.producers import MarkerPlace, ProducerState

from sim.ablations.ablation import Cut, Seam, both, faults, safeguard
from sim.ablations.occasions import late_marker, late_news, long_absence
from sim.ablations.worlds import carefree_clients, restless_leaders
from sim.control import ControlRun
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
"""Somebody else comes to lead."""
power_fails = faults("power loss", "power loss amid changes", "power loss of some", "power loss by turns")


def fsync(plan: RunPlan) -> bool:
    return plan.settings.get("durability") != "os"


# --- what is committed ---


@of_three("high watermark by the ISR", "committed is what all in sync have", shows=leaders_end)
def _(seam: Seam) -> None:
    def own(self: Replicas, own_offset: int, present: int, *, isr_min: int) -> int:
        return max(present, own_offset)

    seam.replace(Replicas, "high_watermark", own)


@of_three(
    "joining replicas count", "who may be elected as soon as the store says so has what is committed", shows=leaders_end
)
def _(seam: Seam) -> None:
    seam.replace(Replicas, "propose", lambda self, isr: None)


@of_three(
    "followers say what they synced",
    "committed is what no loss of power takes from anybody in sync",
    shows=both(fsync, power_fails),
)
def _(seam: Seam) -> None:
    async def settle(self: Fetcher) -> None:
        pass

    seam.replace(Partition, "fetch_offset", property(lambda self: self.end_offset))
    seam.replace(Fetcher, "_settle", settle)


@of_three("the leader syncs, too", "what is committed is durable where it is led", shows=both(fsync, power_fails))
def _(seam: Seam) -> None:
    high_watermark = Replicas.high_watermark

    def of_followers(self: Replicas, own_offset: int, present: int, *, isr_min: int) -> int:
        known = [offset for replica, offset in self.offsets.items() if replica in self.isr]
        return high_watermark(self, max(own_offset, *known, 0) if known else own_offset, present, isr_min=isr_min)

    seam.replace(Replicas, "high_watermark", of_followers)


@of_three("min ISR", "what is acknowledged survives one broker for good", shows=leaders_end)
def _(seam: Seam) -> None:
    seam.replace(Partition, "_in_sync_min", lambda self, log, replicas: 1)


# --- logs that part ways ---


def _believe(self: FetchSession, row: Watched, partition: Partition) -> None:
    """What a follower says that it has is what the leader has."""
    row.is_claimed = True
    row.offset = min(row.offset, partition.end_offset)
    self._note_replica(row, partition, self._world.monotonic())


@of_three("diverging epochs are looked for", "a follower has what its leader has, not as much of it", shows=leaders_end)
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
    "nothing comes from who leads no more",
    given=restless_leaders,
    occasion=late_news,
    needless="the next fetch names the epoch of the last batch that an old answer has brought; what the leader does "
    "not have of that is cut off before it counts",
)
def _(seam: Seam) -> None:
    append_replicated = Partition.append_replicated

    def append(self: Partition, data: bytes, *, leader_epoch: int, **told: int) -> None:
        append_replicated(self, data, leader_epoch=self.leader_epoch, **told)

    seam.replace(Partition, "append_replicated", append)
    seam.replace(Followed, "is_expecting", property(lambda self: self.partition.role is Role.FOLLOWER))


@of_three(
    "leader epoch of fetches",
    "leader and follower mean the same epoch",
    given=restless_leaders,
    occasion=late_news,
)
def _(seam: Seam) -> None:
    seam.replace(Partition, "check_leader_epoch", lambda self, epoch: None)


@of_three("producers are cut with the log", "what a log knows of producers is what is in it", shows=leaders_end)
def _(seam: Seam) -> None:
    truncate_to = Log.truncate_to

    def keeping(self: Log, offset: int) -> None:
        known = ProducerTable(self.producers.all(), self.producers.decided)
        truncate_to(self, offset)
        self.producers = known

    seam.replace(Log, "truncate_to", keeping)


@of_three(
    "coordinator epoch of markers",
    "a marker that is late does not end the next transaction",
    "transactional",
    "pipeline",
    given=carefree_clients,
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


# --- who is in sync ---


@of_three("in sync from the epoch's start", "who joins has what was committed in older epochs", shows=leaders_end)
def _(seam: Seam) -> None:
    def caught_up(self: Replicas, high_watermark: int, now_ms: int, lag_max_ms: int) -> list[tuple[int, int]]:
        return [
            (each, follower.broker_epoch)
            for each, follower in self._followers.items()
            if each not in self.isr and follower.offset >= high_watermark and now_ms - follower.fetched_ms <= lag_max_ms
        ]

    seam.replace(Replicas, "caught_up", caught_up)


@of_three("broker epoch of who joins", "nobody joins for what it was before it was started anew", shows=leaders_end)
def _(seam: Seam) -> None:
    transact = IsrKeeper._transact

    async def whoever(self: IsrKeeper, expects: list[Expect], puts: list[Any]) -> int | None:
        return await transact(self, [each for each in expects if not each.key.startswith("brokers/")], puts)

    seam.replace(IsrKeeper, "_transact", whoever)
    seam.replace(IsrKeeper, "_may_join", lambda self, replica, epoch: True)


# --- who leads ---


@of_three("leaders from the ISR", "who leads has what is committed", shows=leaders_end)
def _(seam: Seam) -> None:
    def settled(view: PartitionView, brokers: BrokerStates) -> PartitionState:
        state = view.state
        live = [node_id for node_id in view.replicas if node_id in brokers.live]
        if state.leader in live or not live:
            return state
        return PartitionState(live[0], state.leader_epoch + 1, [live[0]])

    seam.replace(elections, "settled", settled)


@of_three("admission comes last", "who comes back is nothing of what it was", alone=ControlRun)
def _(seam: Seam) -> None:
    decide = Controller._decide

    def hasty(self: Controller) -> Sequence[Step]:
        return self._admit(BrokerStates.of(self._feed.image)) or decide(self)

    seam.replace(Controller, "_decide", hasty)


@of_three(
    "fencing of controllers",
    "who has been succeeded decides nothing",
    alone=ControlRun,
    needless="every decision expects as it was seen what it rests on as well: the state of the partition, the "
    "registration of whom it elects or admits; what two decide at once is refused to one of them",
)
def _(seam: Seam) -> None:
    transact = Controller._transact

    async def unfenced(self: Controller, expects: Sequence[Expect], changes: Sequence[Change]) -> bool:
        kept = [each for each in expects if each.key != "controller" or not each.revision]
        return await transact(self, kept, changes)

    seam.replace(Controller, "_transact", unfenced)


@of_three("the lease", "a broker that others have given up leads nothing", alone=ControlRun)
def _(seam: Seam) -> None:
    seam.replace(Registration, "is_valid", lambda self: self._admitted is not None)


# --- who comes first ---


def _eager_clients(seam: Seam) -> None:
    """Several batches of a new producer are on their way at once, as other clients send them."""
    seam.replace(Sequences, "go_alone", property(lambda self: False))


def _forgetful(seam: Seam) -> None:
    """A broker takes what comes behind a batch that it refused."""
    seam.replace(RefusedBatches, "note", lambda self, place, header: None)


def restless(cut: Cut) -> Cut:
    """Leaders that change all the time, and this as well."""

    def both_cuts(seam: Seam) -> None:
        restless_leaders(seam)
        cut(seam)

    return both_cuts


of_new_producers = partial(of_three, occasion=late_news)

of_new_producers(
    "what was refused comes first",
    "the first batches of a producer are stored in their order, whoever begins to lead between them",
    "idempotent",
    given=restless(_eager_clients),
)(_forgetful)

of_new_producers(
    "the first batch goes alone",
    "the same, with brokers that take any sequence of a producer that they do not know",
    "idempotent",
    given=restless(_forgetful),
)(_eager_clients)


# --- what is deleted ---


def short_lived_tombstones(plan: RunPlan) -> bool:
    """Tombstones go soon after they have been compacted for the first time."""
    topics = [topic for workload in plan.workloads for topic in workload.topics]
    return any(int(topic.configs.get("delete.retention.ms", DAY_MS)) <= 1_000 for topic in topics)


@of_three(
    "deletions wait for all replicas",
    "what compaction forgets for good, no replica has missed",
    "compacted",
    shows=short_lived_tombstones,
    occasion=long_absence,
)
def impatient_deletions(seam: Seam) -> None:
    seam.replace(Partition, "held_by_all", property(lambda self: self.high_watermark))
