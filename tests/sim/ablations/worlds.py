"""Worlds that differ from the simulator's own, so that a safeguard stands alone, or its occasion comes within a run."""

from __future__ import annotations

import asyncio

from semel._transactions import Transactions
from semel_broker import coordinator_topic
from semel_broker.txn import identity, metadata, state
from semel_broker.txn.slots import Slot
from semel_storage.producer_table import ProducerTable

from sim.ablations.ablation import Seam


def few_epochs(seam: Seam) -> None:
    """Producer ids have six epochs, not 32,767, so that they are used up."""
    for module in (identity, state):
        seam.replace(module, "EPOCH_MAX", 7)
    for module in (identity, state, metadata):
        seam.replace(module, "EPOCH_LAST", 6)


def slow_load(seam: Seam) -> None:
    """Reading what groups have stored takes a while, as it does where much is stored."""

    async def pause(_: float) -> None:
        await asyncio.sleep(0.02)

    seam.replace(coordinator_topic, "READ_BYTES", 500)
    seam.replace(coordinator_topic, "sleep", pause)


def short_memory(seam: Seam) -> None:
    """Producers are forgotten after two seconds without a batch."""
    expire = ProducerTable.expire

    def expire_soon(self: ProducerTable, now_ms: int, expiration_ms: int) -> None:
        expire(self, now_ms, 2_000)

    seam.replace(ProducerTable, "expire", expire_soon)


def any_connection(seam: Seam) -> None:
    """The broker takes what comes over any connection, as Kafka's does."""
    seam.replace(Slot, "_check_connection", lambda *_: None)


def carefree_clients(seam: Seam) -> None:
    """Clients begin the next transaction without a new epoch, whatever may still be on its way; as others do."""

    def carefree(self: Transactions, *, new_epoch: bool) -> None:
        self._state.closed(new_epoch=new_epoch)

    seam.replace(Transactions, "_close_transaction", carefree)
