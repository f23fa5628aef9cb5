"""A transaction coordinator over a disk in memory. Tests can hold markers, cut the power and set the time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from broker.coordination.owners import producer_ids
from broker.wire import EventLog, batch
from msgspec.structs import replace
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.scheduling.turns import Turns
from semel_broker.topics.topics import Topics
from semel_broker.txn.coordinator import TransactionCoordinator
from semel_broker.txn.markers.channel import Entry
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition, TransactionMetadata
from semel_broker.txn.model.requests import End
from semel_broker.world import World
from semel_protocol.batch import iterate, read_header
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log_directory import LogDirectory

DIRECTORY = "/data"
CLIENT = ClientName("worker", "10.0.0.1")
TIMEOUT_MS = 60_000
PARTITIONS = (("out", 0), ("out", 1))


class Closed:
    """A destination that writes nothing for now."""

    is_here = True

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode]:
        return [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(entries)


class TransactionBroker:
    """The transactions of one broker. The test sets `wall_ms`. `ended`: the ends that the groups got."""

    def __init__(self, *, hold_ms_max: int = 20_000, **settings: str) -> None:
        self.disk = MemoryDisk()
        self.settings = {"durability": "fsync", "log.dir": DIRECTORY}
        self.settings |= {key.replace("_", "."): value for key, value in settings.items()}
        self.hold_ms_max = hold_ms_max
        self.wall_ms = 1_700_000_000_000
        self.log = EventLog()
        self.ended: list[tuple[int, int, int, bool]] = []

    async def open(self, *, wait: bool = True, markers: bool = True) -> TransactionBroker:
        """Start from the contents of the disk. `markers`: whether markers can be written."""
        world = World(now_ms=lambda: self.wall_ms, monotonic=lambda: 1.0, rng=Random(7), disk=self.disk, log=self.log)
        config = load(overrides=[f"{key}={value}" for key, value in self.settings.items()])
        config.limits = replace(config.limits, transaction_hold_ms_max=self.hold_ms_max)
        self.logs = LogDirectory.open(self.disk, DIRECTORY, node_id=0, cluster_id="c", directory_id="d")
        self.store = LocalStore.open(self.disk, f"{DIRECTORY}/semel.store")
        self.config = config
        self.topics = await Topics.open(world=world, config=config, store=self.store, logs=self.logs)
        if self.topics.get("out") is None:
            await self.topics.create(NewTopic(name="out", partitions=2))
        self.transactions = TransactionCoordinator(
            world, config, self.topics, producer_ids(self.store), lambda *ended: self.ended.append(ended)
        )
        self._open_destination = self.transactions.markers.here
        if not markers:
            self.hold_markers()
        self.transactions.start()
        if wait:
            await self.transactions.loaded()
        return self

    async def listing(self) -> list[TransactionMetadata]:
        """The transactional ids by name."""
        return list(await self.transactions.listing(Turns(asyncio.get_running_loop(), lambda: 1.0).slices()))

    def hold_markers(self) -> None:
        self.transactions.markers.here = Closed()

    def release_markers(self) -> None:
        self.transactions.markers.here = self._open_destination

    async def close(self) -> None:
        """Stop in order."""
        await self.transactions.close()
        await self.topics.close()
        await self.store.close()
        self.logs.close()

    async def restart(self, *, markers: bool = True) -> None:
        await self.close()
        await self.open(markers=markers)

    async def lose_power(self, rng: Random | None = None, *, markers: bool = True) -> None:
        """Cut the power and start again. Unsynced data is lost; `rng`: a random part of it remains."""
        self.disk.crash(rng)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.open(markers=markers)

    # --- what producers do ---

    async def init(self, name: str = "t", have: ProducerIdentity | None = None, **options: object) -> ProducerIdentity:
        mine = have or ProducerIdentity()
        step = await self.transactions.init_producer_id(
            name,
            TIMEOUT_MS,
            mine.producer_id,
            mine.epoch,
            client=CLIENT,
            **options,  # type: ignore[arg-type]
        )
        assert step.answer is not None
        return step.answer

    async def add(
        self,
        mine: ProducerIdentity,
        name: str = "t",
        partitions: Sequence[TopicPartition] = PARTITIONS,
        *,
        version: int = 0,
    ) -> None:
        """Add partitions to the transaction."""
        await (await self.transactions.shards.ready(name)).add_partitions(name, mine, partitions, version=version)

    async def begin(self, mine: ProducerIdentity, name: str = "t", *, version: int = 0, first: int = 0) -> None:
        """Add both partitions of `out` and write a record to each."""
        await self.add(mine, name, version=version)
        for topic, index in PARTITIONS:
            self.transactions.verify(name, mine.producer_id, mine.epoch, topic, index)
            data = bytearray(
                batch(
                    b"x",
                    producer_id=mine.producer_id,
                    producer_epoch=mine.epoch,
                    base_sequence=first,
                    is_transactional=True,
                )
            )
            self.topics.partition(topic, index).append(data, header=read_header(data))

    async def end(
        self, mine: ProducerIdentity, commit: bool = True, name: str = "t", *, version: int = 0
    ) -> ProducerIdentity:
        shard = await self.transactions.shards.ready(name)
        return await shard.end(name, End(producer=mine, commit=commit, version=version))

    # --- what can be seen ---

    async def describe(self, name: str = "t") -> TransactionMetadata:
        return (await self.transactions.shards.ready(name)).describe(name)

    async def state(self, name: str = "t") -> str:
        return (await self.describe(name)).state.label

    async def until_state(self, wanted: str, name: str = "t") -> None:
        async with asyncio.timeout(10):
            while await self.state(name) != wanted:
                await asyncio.sleep(0.002)

    def markers(self, index: int = 0) -> list[tuple[int, str]]:
        """(epoch, kind) of every marker in a partition of `out`."""
        partition = self.topics.partition("out", index)
        found = []
        for header, data in iterate(partition.read(partition.log_start_offset, bytes_max=1 << 20)):
            if header.is_control:
                marker = read_marker(data, header)
                assert marker is not None
                found.append((header.producer_epoch, ControlType(marker.control_type).name))
        return found

    def is_open(self, index: int = 0) -> bool:
        """Whether an open transaction blocks readers of committed data."""
        partition = self.topics.partition("out", index)
        return partition.last_stable_offset < partition.end_offset
