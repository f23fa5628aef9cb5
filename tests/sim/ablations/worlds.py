"""Changes of the simulated world, so that a safeguard is the only one, or is needed within a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace
from semel._group.member import GroupIdentity
from semel._transactions.manager import ProducerTransactions
from semel.errors import error_for
from semel_broker.cluster import elections
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.image import PartitionView
from semel_broker.cluster.records import PartitionState
from semel_broker.cluster.steps import Step
from semel_broker.coordination import journal
from semel_broker.txn.model import identity, state
from semel_broker.txn.slot import TransactionSlot
from semel_protocol.errors import ErrorCode
from semel_storage.disk.disk import Disk
from semel_storage.internal_topics import CONSUMER_OFFSETS
from semel_storage.log import recovery
from semel_storage.log.snapshot import SNAPSHOT
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.segments.log_config import LogConfig

from sim.ablations.ablation import Seam
from sim.disk import SimDisk

CHANGING_EPOCHS_MAX = 20


def few_epochs(seam: Seam) -> None:
    """Producer ids have six epochs, not 32,767, so that a run uses them up."""
    for module in (identity, state):
        seam.replace(module, "EPOCH_MAX", 7)
        seam.replace(module, "EPOCH_LAST", 6)


def slow_load(seam: Seam) -> None:
    """Loading groups takes long, as with much data. Each partition of `__consumer_offsets` takes half a second more
    after its last record."""
    replay = journal.Journal.replay

    async def pause(_: float) -> None:
        await asyncio.sleep(0.02)

    async def replay_slowly(self: journal.Journal, take: Callable[[bytes], int]) -> None:
        await replay(self, take)
        if self._partition.topic == CONSUMER_OFFSETS:
            await asyncio.sleep(0.5)

    seam.replace(journal, "READ_BYTES", 500)
    seam.replace(journal, "sleep", pause)
    seam.replace(journal.Journal, "replay", replay_slowly)


def no_recovery_points(seam: Seam) -> None:
    """A start has no recovery point: it reads each log from the beginning and trusts no snapshot as durable."""
    recover = recovery.recover

    def from_the_beginning(
        disk: Disk, directory: str, config: LogConfig, opening: recovery.Opening
    ) -> recovery.Recovered:
        return recover(disk, directory, config, replace(opening, recovery_point=None))

    seam.replace(recovery, "recover", from_the_beginning)


def short_producer_expiration(seam: Seam) -> None:
    """Producers are forgotten after two seconds without a batch."""
    expire = ProducerTable.expire

    def expire_soon(self: ProducerTable, now_ms: int, expiration_ms: int) -> None:
        expire(self, now_ms, 2_000)

    seam.replace(ProducerTable, "expire", expire_soon)


def uncertain_snapshots(seam: Seam) -> None:
    """A power loss removes an unsynced snapshot or leaves it whole, each with a chance of one half."""
    power_loss = SimDisk.power_loss

    def uncertain(self: SimDisk) -> None:
        loose = [path for path in self.paths() if path.endswith(SNAPSHOT) and not self.is_durable(path)]
        before = {path: self.read_bytes(path) for path in loose}
        power_loss(self)
        for path, data in before.items():
            if not self.exists(path.rpartition("/")[0]):
                continue
            if self.rng.random() < 0.5:
                self.put(path, data)
            else:
                self.take(path)

    seam.replace(SimDisk, "power_loss", uncertain)


def changing_leaders(seam: Seam) -> None:
    """Leaders change all the time: each check of preferred leaders elects the next live replica in sync, up to
    `CHANGING_EPOCHS_MAX` leader epochs."""

    def next_ones(views: Iterable[PartitionView], brokers: BrokerStates) -> Iterator[Step]:
        for view in views:
            state = view.state
            others = [each for each in view.replicas if each in state.isr and each in brokers.live]
            if state.leader not in others or len(others) < 2 or state.leader_epoch >= CHANGING_EPOCHS_MAX:
                continue
            leader = others[(others.index(state.leader) + 1) % len(others)]
            state = PartitionState(leader, state.leader_epoch + 1, state.isr)
            yield elections.election(view, state, brokers, "it is the next one's turn")

    seam.replace(elections, "preferred", next_ones)


def any_connection(seam: Seam) -> None:
    """The coordinator accepts requests over any connection, as Kafka does."""
    seam.replace(TransactionSlot, "_check_connection", lambda *_: None)


def clients_that_keep_epochs(seam: Seam) -> None:
    """Clients begin the next transaction without a new epoch even if requests may be in flight, as other clients do."""

    def keeps_epoch(self: ProducerTransactions, *, new_epoch: bool, committed: bool) -> None:
        self._state.closed(new_epoch=new_epoch)

    seam.replace(ProducerTransactions, "_close_transaction", keeps_epoch)


def needless_rebalances(seam: Seam) -> None:
    """Every fifth heartbeat of a member gets REBALANCE_IN_PROGRESS: only this member joins again."""
    heartbeat = GroupIdentity.heartbeat
    beats: Counter[str] = Counter()

    async def restless(self: GroupIdentity) -> None:
        beats[self.member_id] += 1
        if beats[self.member_id] % 5 == 0:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "heartbeat")
        await heartbeat(self)

    seam.replace(GroupIdentity, "heartbeat", restless)
