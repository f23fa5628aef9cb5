"""The transactional ids of one partition of `__transaction_state`: read when this broker comes to lead it, then moved.

What a former leader had decided goes on: markers are written again, in this leader epoch, which shuts out what the
former one may still have on its way.
"""

from __future__ import annotations

from asyncio import Lock, sleep
from collections.abc import Sequence

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.journal import Journal
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.coordination.shards import Shard
from semel_broker.partitions.partition import Partition
from semel_broker.txn.engine import Engine
from semel_broker.txn.group_engine import GroupEngine
from semel_broker.txn.group_slots import GroupSlots
from semel_broker.txn.markers.channel import MarkerChannel
from semel_broker.txn.model import state
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.identity import ClientName
from semel_broker.txn.model.ledger import ExpiredIds
from semel_broker.txn.model.metadata import PREPARE_EPOCH_FENCE, TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.replay import Replay
from semel_broker.txn.slots import Slot, Slots
from semel_broker.world import World

LOADED_AT_ONCE = 500
"""Transactional ids read between two pauses, in which the loop does what else there is."""


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """What the shards of one coordinator share. `me`: how the fence ledger names it."""

    world: World
    config: BrokerConfig
    markers: MarkerChannel
    producer_ids: ProducerIds
    expired: ExpiredIds
    me: ClientName


class TransactionShard(Shard):
    """The ids whose records lie in `partition`. To be asked while it `is_ready`."""

    what = "transactions"

    def __init__(self, office: Office, partition: Partition, reading: Lock) -> None:
        super().__init__(partition, office.world.log, reading)
        self._office = office
        self._journal = Journal(office.world, partition, passed=ErrorCode.RECORD_LIST_TOO_LARGE)
        self._is_read = False
        self._resumed: dict[str, None] = {}
        self.slots = Slots()
        self.engine = Engine(
            office.world,
            self.slots,
            self._journal,
            office.markers,
            office.producer_ids,
            check=self.check,
            coordinator_epoch=self.epoch,
            hold_ms_max=office.config.limits.transaction_hold_ms_max,
        )
        self.groups = GroupSlots()
        self.group_engine = GroupEngine(
            office.world,
            self.groups,
            self.slots,
            self._journal,
            self.engine,
            office.producer_ids,
            check=self.check,
            hold_ms_max=office.config.limits.transaction_hold_ms_max,
        )

    def members_of(self, group: str) -> list[TransactionMetadata]:
        """What is known of the members of a transaction group, by transactional id."""
        return [slot.metadata for slot in self.slots.members(group) if slot.metadata is not None]

    def members_in(self, group: TransactionGroup, but: str) -> int:
        """How many members the group's step has besides `but`; of those who come at once each sees those before."""
        names = [txn.transactional_id for txn in self.members_of(group.name) if txn.group_epoch == group.epoch]
        return len(names) - (but in names)

    async def forget(self, slots: Sequence[Slot]) -> None:
        """Tombstones for ids that nobody has used for long; the caller has their turns. Raises KafkaError 15, 16."""
        now_ms = self._office.world.now_ms()
        expiration_ms = self._office.config.transactional_id_expiration_ms
        rows = []
        for slot in slots:
            assert slot.metadata is not None
            rows.append((slot, state.expire(slot.metadata, now_ms, expiration_ms, self._office.me)))
        await self._journal.append([row_of(dead) for _, dead in rows]).durable()
        for slot, dead in rows:
            slot.apply(dead)
            self._office.expired.add(dead.transactional_id, dead.fences)
            self.engine.tell_fence(dead)
            self.slots.drop(slot)

    async def _load(self) -> None:
        if self._is_read:
            return
        replay = Replay()
        await self._journal.replay(replay.take)
        for at, txn in enumerate(replay.transactions()):
            self.slots.put(txn)
            if at % LOADED_AT_ONCE == 0:
                await sleep(0)
        for group in replay.groups():
            self.groups.put(group)
        self._is_read = True

    async def _go_on(self) -> None:
        for slot in self.slots:
            if slot.transactional_id not in self._resumed:
                await self._resume(slot)
                self._resumed[slot.transactional_id] = None
        self._resumed.clear()
        self._log.info("transactions_loaded", partition=self.index, transactional_ids=len(self.slots))

    async def _resume(self, slot: Slot) -> None:
        """What was decided before goes on."""
        txn = slot.metadata
        assert txn is not None
        if txn.state is PREPARE_EPOCH_FENCE:
            await self.engine.persist(slot, state.taken_over(txn, self._office.world.now_ms(), self._office.me))
        elif txn.is_prepared:
            self._log.info("transaction_resumed", transactional_id=txn.transactional_id, state=txn.state.label)
            self.engine.write_markers(slot, txn)

    def _let_go(self, error: KafkaError) -> None:
        self.engine.close(error)
