"""Worlds that differ from the simulator's own, so that a safeguard stands alone, or its occasion comes within a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel._transactions import Transactions
from semel_broker import coordinator_topic
from semel_broker.groups.journal import Journal
from semel_broker.txn import identity, metadata, state
from semel_broker.txn.slots import Slot
from semel_protocol.batch import BatchHeader
from semel_storage.producer_table import ProducerTable
from semel_storage.snapshot import SNAPSHOT

from sim.ablations.ablation import Seam
from sim.disk import SimDisk


def few_epochs(seam: Seam) -> None:
    """Producer ids have six epochs, not 32,767, so that they are used up."""
    for module in (identity, state):
        seam.replace(module, "EPOCH_MAX", 7)
    for module in (identity, state, metadata):
        seam.replace(module, "EPOCH_LAST", 6)


def slow_load(seam: Seam) -> None:
    """Reading what groups have stored takes a while, as it does where much is stored; most of it in the partition that
    comes last."""
    replay = Journal.replay

    async def pause(_: float) -> None:
        await asyncio.sleep(0.02)

    async def replay_slowly(self: Journal, feed: Callable[[int, BatchHeader, memoryview], None]) -> None:
        await replay(self, feed)
        await asyncio.sleep(0.5)

    seam.replace(coordinator_topic, "READ_BYTES", 500)
    seam.replace(coordinator_topic, "sleep", pause)
    seam.replace(Journal, "replay", replay_slowly)


def short_memory(seam: Seam) -> None:
    """Producers are forgotten after two seconds without a batch."""
    expire = ProducerTable.expire

    def expire_soon(self: ProducerTable, now_ms: int, expiration_ms: int) -> None:
        expire(self, now_ms, 2_000)

    seam.replace(ProducerTable, "expire", expire_soon)


def moody_snapshots(seam: Seam) -> None:
    """A loss of power takes a snapshot that nobody has synced, or leaves it whole; and does so evenly."""
    power_loss = SimDisk.power_loss

    def moody(self: SimDisk) -> None:
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

    seam.replace(SimDisk, "power_loss", moody)


def any_connection(seam: Seam) -> None:
    """The broker takes what comes over any connection, as Kafka's does."""
    seam.replace(Slot, "_check_connection", lambda *_: None)


def carefree_clients(seam: Seam) -> None:
    """Clients begin the next transaction without a new epoch, whatever may still be on its way; as others do."""

    def carefree(self: Transactions, *, new_epoch: bool) -> None:
        self._state.closed(new_epoch=new_epoch)

    seam.replace(Transactions, "_close_transaction", carefree)
