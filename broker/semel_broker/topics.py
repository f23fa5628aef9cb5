"""The topics of this broker: their metadata in the store, their partitions opened when needed.

A topic is one key of the store. Every change is decided on a record (`topic_plan`), persisted by compare-and-swap,
applied to memory, then answered; so of two that create one name exactly one wins, and a crash between the store and
the directories is harmless: a directory appears when its partition is first written, and one whose topic is gone is
removed at the next start.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, shield
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.log import Log
from semel_storage.log_config import LogConfig
from semel_storage.log_directory import LogDirectory, partition_directory

from semel_broker import dynamic_configs, topic_configs, topic_plan
from semel_broker.cluster.store import ABSENT, Delete, Entry, Expect, Put, Store
from semel_broker.config import BrokerConfig
from semel_broker.config_edits import Configs
from semel_broker.flusher import Flusher
from semel_broker.partition import Partition
from semel_broker.topic_plan import INTERNAL_TOPICS, NewTopic, TopicRecord
from semel_broker.world import World

_TOPICS: Final = "topics/"
_DELETIONS: Final = "deletions/"
STRAY_SUFFIX: Final = "-stray"
_decode = msgspec.json.Decoder(TopicRecord).decode


class Topic(msgspec.Struct, kw_only=True):
    """A topic as this broker knows it. `config`: all settings in force; `opened`: partitions somebody asked for."""

    record: TopicRecord
    revision: int
    topic_id: bytes
    config: LogConfig
    opened: dict[int, Partition] = {}

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def partition_count(self) -> int:
        return len(self.record.replicas)

    @property
    def configs(self) -> dict[str, str]:
        """The settings that this topic was given; the others follow the broker's."""
        return self.record.configs

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class Topics:
    """All topics by name, and by id. Made by `open`; `close` last."""

    def __init__(self, *, world: World, config: BrokerConfig, store: Store, logs: LogDirectory) -> None:
        self._world = world
        self._config = config
        self._store = store
        self._logs = logs
        self._flusher = Flusher(world.disk)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_key: dict[str, Topic] = {}
        self._partition_count = 0
        self._removals: dict[str, Task[None]] = {}
        self.listeners: list[Callable[[Partition], None]] = []

    def led(self, name: str) -> list[Partition]:
        """Stand-in."""
        topic = self._by_name.get(name)
        return [] if topic is None else [self.partition(name, index) for index in range(topic.partition_count)]

    @classmethod
    async def open(cls, *, world: World, config: BrokerConfig, store: Store, logs: LogDirectory) -> Topics:
        """Load what the store knows, finish deletions that a crash cut short, and recover the logs that are there.

        Broker settings altered at run time are put in force first, as the topics follow them. Raises what recovery
        of a log raises.
        """
        await dynamic_configs.load(store, config)
        topics = cls(world=world, config=config, store=store, logs=logs)
        for entry in (await store.list(_TOPICS)).entries:
            topics._apply(entry)
        for entry in (await store.list(_DELETIONS)).entries:
            record = _decode(entry.value)
            topics._take_away(record)
            await store.transact([], [Delete(entry.key)])
        topics._recover()
        return topics

    # --- looking up ------------------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        """The topic of that name, or None."""
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with that id (16 bytes), or None."""
        return self._by_id.get(topic_id)

    def required(self, name: str) -> Topic:
        """The topic of that name. Raises UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for no name at all."""
        topic = self._by_name.get(name)
        if topic is None:
            topic_plan.check_name(name, self._config)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def names(self) -> list[str]:
        """All topics' names, sorted."""
        return sorted(self._by_name)

    def partition(self, name: str, index: int) -> Partition:
        """A partition, its log not opened by this. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._by_name.get(name)
        if topic is not None:
            partition = topic.opened.get(index)
            if partition is not None:
                return partition
            if 0 <= index < topic.partition_count:
                return self._new_partition(topic, index)
        what = f"topic {name!r}" if topic is None else f"partition {index} of topic {name!r}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")

    def partitions(self) -> list[Partition]:
        """The partitions whose logs are open, by topic and index."""
        topics = (self._by_name[name] for name in self.names())
        return [partition for topic in topics for _, partition in sorted(topic.opened.items()) if partition.is_open]

    # --- changing --------------------------------------------------------------------------------------------

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Create a topic; durable when this returns.

        Raises KafkaError 17, 36, 37, 38, 39, 40, 42, 44. With `validate_only` nothing is written and the topic is the
        one that would be.
        """
        record = topic_plan.create(new, topic_id=self._new_id(), brokers=[self._config.node_id], config=self._config)
        self._check_total(len(record.replicas))
        key = _key(new.name)
        if key in self._by_key:
            raise _exists(new.name, self._by_key[key].name)
        if validate_only:
            return self._topic(record, ABSENT)
        if (removal := self._removals.get(key)) is not None:
            await shield(removal)  # the directories of its predecessor must be out of the way
        value = msgspec.json.encode(record)
        revision = await self._store.transact([Expect(key)], [Put(key, value)])
        if revision is None:
            await self._catch_up(key)
            raise _exists(new.name, self._by_key[key].name if key in self._by_key else new.name)
        topic = self._apply(Entry(key, value, revision))
        self._world.log.info("topic_created", topic=new.name, partitions=topic.partition_count, configs=record.configs)
        return topic

    async def ensure(self, name: str) -> Topic:
        """The topic of that name, created with the broker's defaults (an internal one with its own) if need be.

        Concurrent callers get one and the same. Raises as `create`, but for 36.
        """
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        internal = name in INTERNAL_TOPICS
        new = topic_plan.internal_topic(name, self._config) if internal else NewTopic(name=name)
        try:
            return await self.create(new)
        except KafkaError as error:
            topic = self._by_name.get(name)
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or topic is None:
                raise
            return topic

    async def delete(self, name: str) -> None:
        """Delete a topic: gone durably when this returns; its files are removed behind its back.

        Raises UNKNOWN_TOPIC_OR_PARTITION.
        """
        while True:
            topic = self.required(name)
            key = _key(name)
            expect = Expect(key, topic.revision)
            note = Put(_DELETIONS + topic.record.topic_id, msgspec.json.encode(topic.record))
            if await self._store.transact([expect], [Delete(key), note]) is not None:
                break
            await self._catch_up(key)
        await shield(self._start_removal(key, topic))

    async def add_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Grow a topic to `count` partitions. Raises KafkaError 3, 37, 39, 44."""

        def grow(record: TopicRecord) -> TopicRecord:
            grown = topic_plan.grow(
                record, count, assignments=assignments, brokers=[self._config.node_id], config=self._config
            )
            self._check_total(count - len(record.replicas))
            return grown

        return await self._change(name, grow, validate_only)

    async def alter_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Configs], *, validate_only: bool = False
    ) -> Topic:
        """Give a topic the settings that `edit` makes of its present ones; open logs have them at once.

        Raises KafkaError 3, 40, or what `edit` raises.
        """

        def reconfigure(record: TopicRecord) -> TopicRecord:
            return topic_plan.reconfigure(record, edit(record.configs), self._config)

        return await self._change(name, reconfigure, validate_only)

    def follow_broker(self) -> None:
        """The broker's settings changed: so do those of all topics that follow them."""
        for name in self.names():
            self._configure(self._by_name[name])

    async def close(self) -> None:
        """Finish removals, then close every partition. The logs themselves are the data directory's to close."""
        for _, removal in sorted(self._removals.items(), key=lambda row: row[0]):
            await removal
        for partition in self.partitions():
            await partition.close()

    # --- inside: persist -------------------------------------------------------------------------------------

    async def _change(self, name: str, change: Callable[[TopicRecord], TopicRecord], validate_only: bool) -> Topic:
        """Decide on the record as it is, persist if it still is so, apply; else decide again."""
        while True:
            topic = self.required(name)
            record = change(topic.record)
            if validate_only:
                return self._topic(record, ABSENT)
            key, value = _key(name), msgspec.json.encode(record)
            revision = await self._store.transact([Expect(key, topic.revision)], [Put(key, value)])
            if revision is not None:
                self._world.log.info(
                    "topic_changed", topic=name, partitions=len(record.replicas), configs=record.configs
                )
                return self._apply(Entry(key, value, revision))
            await self._catch_up(key)

    async def _catch_up(self, key: str) -> None:
        """Somebody else changed `key` first: know what they made of it before deciding again."""
        entry = await self._store.get(key)
        if entry is not None:
            self._apply(entry)

    # --- inside: apply ---------------------------------------------------------------------------------------

    def _apply(self, entry: Entry) -> Topic:
        """What the store says comes into being, at start and live alike; what is older than what is known does not."""
        known = self._by_key.get(entry.key)
        if known is not None and known.revision >= entry.revision:
            return known
        record = _decode(entry.value)
        if known is None:
            topic = self._topic(record, entry.revision)
            self._by_key[entry.key] = self._by_name[record.name] = self._by_id[topic.topic_id] = topic
            self._partition_count += topic.partition_count
            if self.listeners and topic.is_internal:
                for partition in self.led(topic.name):
                    for listener in self.listeners:
                        listener(partition)
            return topic
        assert known.record.topic_id == record.topic_id, (known.record, record)
        self._partition_count += len(record.replicas) - known.partition_count
        known.record, known.revision = record, entry.revision
        self._configure(known)
        return known

    def _topic(self, record: TopicRecord, revision: int) -> Topic:
        config = topic_configs.in_force(record.configs, self._config)
        return Topic(record=record, revision=revision, topic_id=record.id_bytes, config=config)

    def _configure(self, topic: Topic) -> None:
        topic.config = topic_configs.in_force(topic.configs, self._config)
        for _, partition in sorted(topic.opened.items()):
            if partition.is_open:
                partition.log.config = topic.config

    def _start_removal(self, key: str, topic: Topic) -> Task[None]:
        """Out of memory at once; out of the directory when the task is done."""
        del self._by_key[key], self._by_name[topic.name], self._by_id[topic.topic_id]
        self._partition_count -= topic.partition_count
        for _, partition in sorted(topic.opened.items()):
            partition.retire()
        self._removals[key] = get_running_loop().create_task(self._remove(key, topic))
        return self._removals[key]

    async def _remove(self, key: str, topic: Topic) -> None:
        try:
            for _, partition in sorted(topic.opened.items()):
                await partition.close()
            self._take_away(topic.record)
            await self._store.transact([], [Delete(_DELETIONS + topic.record.topic_id)])
            self._world.log.info("topic_deleted", topic=topic.name)
        finally:
            del self._removals[key]

    # --- inside: logs ----------------------------------------------------------------------------------------

    def _new_partition(self, topic: Topic, index: int) -> Partition:
        def open_log() -> Log:
            now_ms = self._world.now_ms()
            return self._logs.open_log(topic.name, index, topic.config, now_ms=now_ms, topic_id=topic.topic_id)

        fsync = self._config.durability == "fsync"
        partition = Partition(
            topic.name, index, open_log=open_log, world=self._world, fsync=fsync, flusher=self._flusher
        )
        topic.opened[index] = partition
        return partition

    def _recover(self) -> None:
        """Open every log that has a directory. One that belongs to no topic is set aside, never deleted: should the
        store have been lost, the records are still there."""
        for name, index in self._logs.partitions():
            topic = self._by_name.get(name)
            topic_id = self._logs.topic_id(name, index)
            if topic is not None and index < topic.partition_count and topic_id in (topic.topic_id, None):
                self.partition(name, index).open()
                continue
            path = f"{self._logs.root}/{partition_directory(name, index)}"
            aside = f"{path}.{topic_plan.text_of_id(self._new_id())}{STRAY_SUFFIX}"
            self._logs.disk.rename(path, aside)
            self._logs.disk.sync_dir(self._logs.root)
            self._world.log.warning("stray_partition_set_aside", topic=name, partition=index, directory=aside)

    def _take_away(self, record: TopicRecord) -> None:
        """Delete the logs of a deleted topic, if the directories are its own and not of a successor of that name. One
        that has lost its topic id (to a power cut) is the successor's, if there is one."""
        unnamed = None if record.name not in self._by_name else record.id_bytes
        for index in range(len(record.replicas)):
            if self._logs.topic_id(record.name, index) in (record.id_bytes, unnamed):
                self._logs.delete_log(record.name, index, unique=record.topic_id)

    # --- inside: checks --------------------------------------------------------------------------------------

    def _check_total(self, more: int) -> None:
        most = self._config.limits.partitions_max
        if self._partition_count + more > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this broker holds {self._partition_count} partitions and may hold {most}: {more} more are too many",
            )

    def _new_id(self) -> bytes:
        """A random id that is not taken, not all zeros, and not mistaken for an option on a command line."""
        while True:
            topic_id = self._world.rng.randbytes(16)
            if any(topic_id) and topic_id not in self._by_id and not topic_plan.text_of_id(topic_id).startswith("-"):
                return topic_id


def _key(name: str) -> str:
    """The store's key of a topic. Names that collide share it, so that compare-and-swap lets one of them in."""
    return _TOPICS + topic_plan.collision_name(name)


def _exists(name: str, other: str) -> KafkaError:
    if name == other:
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic name {name!r} collides with {other!r}: they differ only in '.' and '_'",
    )
