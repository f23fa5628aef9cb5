"""The topics of the cluster as this broker knows them: created, grown, configured, deleted, and their partitions here.

A topic is one key of the store. Each change is decided on its record (`topic_plan`), persisted by compare-and-swap, and
answered once the feed has brought it to this broker's image. All brokers get it through their feeds. So of two requests
that create the same name exactly one succeeds, also on different brokers.

A directory appears when its partition is first written, and is removed when its topic is deleted. A crash between the
write to the store and the change of the directories is harmless: the next start completes it.
"""

from __future__ import annotations

from asyncio import Task, current_task, gather, get_running_loop, sleep, wait
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final, Self

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.log_directory import LogDirectory, NotRemoved
from semel_storage.segments.log_config import LogConfig

from semel_broker.cluster import placement, records, topic_plan
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta, PartitionView, StoredValue
from semel_broker.cluster.records import TopicRecord
from semel_broker.cluster.store import (
    ABSENT,
    CHANGES_MAX,
    Change,
    Delete,
    Expect,
    OutcomeUnknownError,
    Put,
    Store,
    StoreClosedError,
    StoreUnavailableError,
)
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS, NewTopic, Sites
from semel_broker.cluster.writes import catch_up, creating, removing, stays_absent, stays_as_is, write
from semel_broker.config import topic_configs
from semel_broker.config.edits import Configs
from semel_broker.config.loading import BrokerConfig
from semel_broker.config.topic_configs import PRODUCER
from semel_broker.partitions.local import LocalPartitions
from semel_broker.partitions.partition import Lease, Partition
from semel_broker.scheduling.turns import SLICE_STEPS, Turns
from semel_broker.topics import dynamic_configs
from semel_broker.world import StopRequestedError, World

__all__ = ["Topic", "Topics"]

OPEN_AGAIN_S = 10.0
"""A log that could not be opened in the background is tried again after this time."""

RETIRED_AT_ONCE: Final = 64
"""Partitions of a deleted topic that get no more requests in the turn in which the topic is gone. Others follow in
slices: what is appended to them meanwhile is deleted with them."""
RETRY_S: Final = 0.5
BECAUSE_OF_BROKER: Final[Mapping[str, str]] = {"cause": "needed_by_broker"}
"""Why an internal topic is created."""


class Topic(msgspec.Struct, kw_only=True):
    """A topic as this broker knows it. `config`: all settings in force; `opened`: the partitions made here."""

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
        """The settings of this topic alone; all others follow the broker."""
        return self.record.configs

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class Topics:
    """All topics by name, and by id. Made by `open`; `close` last."""

    def __init__(
        self,
        *,
        world: World,
        config: BrokerConfig,
        store: Store,
        feed: Feed,
        logs: LogDirectory,
        lease: Lease | None,
    ) -> None:
        self.feed = feed
        self.local = LocalPartitions(world, config, feed.image, logs, lease)
        self._image = feed.image
        self._world = world
        self._config = config
        self._store = store
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._partition_count = 0
        self._turns = Turns(get_running_loop(), world.monotonic)  # of the slices in which large topics are removed
        self._removals: dict[str, dict[Task[None], Sequence[int]]] = {}  # by topic key: tasks, and their partitions
        self._unfinished: set[str] = set()  # ids of deleted topics, until the store has noted their removal here
        self._owns_feed = False
        self._unopened: dict[tuple[str, int], None] = {}
        """Partitions that were written before this start and whose logs are not open yet."""
        self._opening: Task[None] | None = None
        self.recompressing: set[str] = set()
        """The topics whose batches are not stored under the producer's codec."""

    @classmethod
    async def open(
        cls,
        *,
        world: World,
        config: BrokerConfig,
        store: Store,
        logs: LogDirectory,
        feed: Feed | None = None,
        lease: Lease | None = None,
    ) -> Self:
        """Read the topics from the store, finish deletions that a crash interrupted, and recover the logs.

        Broker settings altered at run time are put in force first, as the topics follow them. Without a `feed` the
        topics open one of their own. A partition whose files are damaged, or do not match the store, is offline, and
        all others are served. Raises KAFKA_STORAGE_ERROR if no more files can be opened, and
        StopRequestedError between two logs.

        Of a broker without a cluster only the first logs are opened now, and those whose opening blocks; the others
        when they are used, or in the background (`begin_opening`). In a cluster the ends of all logs decide on roles.
        """
        owns_feed, feed = feed is None, feed or await Feed.open(store, world.log)
        topics = cls(world=world, config=config, store=store, feed=feed, logs=logs, lease=lease)
        topics._owns_feed = owns_feed
        dynamic_configs.follow(feed.image, config)
        for key in sorted(feed.image.topics):
            topics._apply_topic(feed.image.topics[key])
        unfinished = [
            stored.value for (_, node_id), stored in sorted(feed.image.deletions.items()) if node_id == config.node_id
        ]
        topics._unfinished.update(record.topic_id for record in unfinished)
        removed = [record for record in unfinished if topics._finish_removal(record)]
        found = topics.local.recover(topics._owner)
        opened = 0
        for each in found:
            if world.is_to_stop():
                raise StopRequestedError
            place = each.view.topic, each.view.index
            is_first = lease is not None or opened < config.limits.logs_opened_at_start_max
            if each.problem or is_first or topics.local.is_interrupted(each.view):
                topics._open(topics.partition(*place), each.problem)
                opened += 1
            else:
                topics._unopened[place] = None
        if opened and not logs.was_clean:
            world.log.info("recovered_after_unclean_stop", logs=opened)
        for view in feed.image.partitions():
            topics._apply_partition(view)
        feed.listeners.append(topics._follow)  # no await since the image was read: no change is missed
        for record in removed:
            await topics._note_removed(record.topic_id)
        return topics

    def _finish_removal(self, record: TopicRecord) -> bool:
        """Remove the directories of a deleted topic. False: some remain, and the next start tries it again."""
        try:
            self.local.delete_topic_now(record, has_successor=record.name in self._by_name)
        except NotRemoved:
            return False
        return True

    @staticmethod
    def _open(partition: Partition, problem: str) -> None:
        """Open the log of a partition, or take the partition offline. Raises KAFKA_STORAGE_ERROR for files used up."""
        if problem:
            partition.take_offline(problem)
            return
        try:
            partition.open()
        except KafkaError:
            if not partition.is_offline:
                raise

    # --- looking up ------------------------------------------------------------------------------------------

    @property
    def listeners(self) -> list[Callable[[Partition], None]]:
        """Called with each replica of this broker whose role, leader or leader epoch changed, or that is retired."""
        return self.local.listeners

    def get(self, name: str) -> Topic | None:
        """The topic of that name, or None."""
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with that id (16 bytes), or None."""
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with that id (16 bytes); None: there is no such topic."""
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    def required_by_id(self, topic_id: bytes) -> Topic:
        """The topic with that id (16 bytes). Raises UNKNOWN_TOPIC_ID."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            text = topic_plan.text_of_id(topic_id)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {text}: refresh the metadata")
        return topic

    def required(self, name: str) -> Topic:
        """The topic of that name. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for an illegal name."""
        topic = self._by_name.get(name)
        if topic is None:
            topic_plan.check_name(name, self._config)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    async def find(self, name: str) -> Topic:
        """As `required`, for a change: a topic that another broker has just created is found, too.

        Raises REQUEST_TIMED_OUT as well.
        """
        if name not in self._by_name:
            topic_plan.check_name(name, self._config)
            await stays_absent(self._store, self.feed, records.topic_key(name))
        return self.required(name)

    def names(self) -> list[str]:
        """All topics' names, sorted."""
        return sorted(self._by_name)

    def view(self, name: str, index: int) -> PartitionView:
        """A partition as the cluster has it, on any broker. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._by_name.get(name)
        view = self._image.partition(topic.record.topic_id, index) if topic is not None else None
        if view is None:
            what = f"topic {name!r}" if topic is None else f"partition {index} of topic {name!r}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")
        return view

    def partition(self, name: str, index: int) -> Partition:
        """The replica of this broker. Its log is opened only if it was written before this start.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER if this broker has no replica, and
        KAFKA_STORAGE_ERROR if no more files can be opened.
        """
        topic = self._by_name.get(name)
        if topic is not None and (partition := topic.opened.get(index)) is not None:
            return partition
        view = self.view(name, index)
        assert topic is not None
        if self._is_being_removed(name, index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is being made anew: try again")
        is_unopened = (name, index) in self._unopened  # without its log it would look empty
        partition = topic.opened[index] = self.local.make(view, lambda: topic.config, opens=is_unopened)
        if is_unopened:
            del self._unopened[name, index]
        return partition

    def begin_opening(self) -> None:
        """The broker serves. Open the other logs in the background: retention and compaction need them."""
        self.local.is_serving = True
        if self._unopened:
            self._opening = get_running_loop().create_task(self._open_others(), name="opening of logs")

    async def _open_others(self) -> None:
        slices, count = self._turns.slices(), len(self._unopened)
        steps = SLICE_STEPS // self._config.limits.logs_opened_in_turn_max
        while self._unopened:
            name, index = next(iter(self._unopened))
            try:
                self.partition(name, index)
            except KafkaError as error:
                self._world.log.warning(
                    "log_not_opened",
                    topic=name,
                    partition=index,
                    error=error.message,
                    left=len(self._unopened),
                    again_s=OPEN_AGAIN_S,
                )
                await sleep(OPEN_AGAIN_S)
            if slices.is_over(steps):
                await slices.next()
        self._world.log.info("other_logs_opened", logs=count, recovered=not self.local.was_clean)

    @property
    def unopened(self) -> int:
        """The number of logs that were written before this start and are not open yet."""
        return len(self._unopened)

    def unopened_size(self, name: str, index: int) -> int:
        """Bytes of a log that was written before this start and is not open yet; 0 for another one."""
        return self.local.size_of(name, index) if (name, index) in self._unopened else 0

    def partitions(self) -> list[Partition]:
        """The partitions whose logs are open, by topic and index."""
        return [partition for partition in self.local.all() if partition.is_open]

    def here(self) -> list[Partition]:
        """The replicas of this broker that were made, by topic and index."""
        return self.local.all()

    def led(self, name: str) -> list[Partition]:
        """The partitions of a topic that this broker leads, by index."""
        topic = self._by_name.get(name)
        if topic is None:
            return []
        mine = [index for index, ids in enumerate(topic.record.replicas) if self._config.node_id in ids]
        return [partition for index in mine if (partition := self.partition(name, index)).is_leading]

    # --- changing --------------------------------------------------------------------------------------------

    async def create(
        self, new: NewTopic, *, validate_only: bool = False, because: Mapping[str, str] = BECAUSE_OF_BROKER
    ) -> Topic:
        """Create a topic; durable when this returns. With `validate_only` nothing is written. `because`: the cause, for
        the log; and the client that asks for it.

        Raises REQUEST_TIMED_OUT, INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION.
        """
        topic_plan.check_name(new.name, self._config)
        key = records.topic_key(new.name)
        is_settled = False
        while True:
            try:
                record = await self._plan(new)
            except KafkaError:
                if is_settled:
                    raise
                # another broker may have started, or deleted the topic of that name
                await self._settle(key, validate_only=validate_only)
                is_settled = True
                continue
            if validate_only:
                return self._topic(record, ABSENT)
            await self._removed(new.name)  # the directories of its predecessor must be out of the way
            if await self._transact(creating(self.feed, key), [Put(key, msgspec.json.encode(record))]):
                break
            is_settled = False
        topic = self.required(new.name)
        self._world.log.info(
            "topic_created",
            topic=new.name,
            partitions=topic.partition_count,
            configs=record.configs,
            **because,
        )
        return topic

    async def ensure(self, name: str, because: Mapping[str, str] = BECAUSE_OF_BROKER) -> Topic:
        """The topic of that name, created if it does not exist: with the broker's defaults, or as an internal topic.

        `because`: as in `create`. Concurrent callers get the same topic. Raises as `create`, except
        TOPIC_ALREADY_EXISTS.
        """
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        internal = name in INTERNAL_TOPICS
        new = topic_plan.internal_topic(name, self._config) if internal else NewTopic(name=name)
        try:
            return await self.create(new, because=because)
        except KafkaError as error:
            topic = self._by_name.get(name)
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or topic is None:
                raise
            return topic

    async def delete(self, name: str, *, topic_id: bytes | None = None) -> None:
        """Delete a topic, durably, with its files on this broker; other brokers remove theirs.

        `topic_id`: delete the topic with this id only, and not one that was created anew under its name. Raises
        UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, REQUEST_TIMED_OUT.
        """
        while True:
            topic = await self.find(name) if topic_id is None else self.required_by_id(topic_id)
            record, key = topic.record, records.topic_key(name)
            holders = sorted({node_id for replicas in record.replicas for node_id in replicas})
            value = msgspec.json.encode(record)
            notes: list[Change] = [Put(records.deletion_key(record.topic_id, node_id), value) for node_id in holders]
            if await self._transact([Expect(key, topic.revision)], [*removing(key), *notes]):
                break
        await self._removed(name)
        await self._forget_states(record)

    async def add_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Grow a topic to `count` partitions.

        Raises UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
        POLICY_VIOLATION.
        """

        async def grow(record: TopicRecord) -> TopicRecord:
            plan = topic_plan.grow(record, count, assignments=assignments, sites=self._sites(), config=self._config)
            grown = await self._turns.slices().finish(plan)
            self._check_total(count - len(record.replicas))
            self._check_room(grown.replicas[len(record.replicas) :])
            return grown

        return await self._change(name, grow, validate_only)

    async def alter_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Configs], *, validate_only: bool = False
    ) -> Topic:
        """Replace the settings of a topic by those that `edit` makes of them; they apply to open logs at once.

        Raises UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, INVALID_CONFIG, or what `edit` raises.
        """

        async def reconfigure(record: TopicRecord) -> TopicRecord:
            return topic_plan.reconfigure(record, edit(record.configs), self._config)

        return await self._change(name, reconfigure, validate_only)

    # --- the broker itself -----------------------------------------------------------------------------------

    def follow_broker(self) -> None:
        """The settings of the broker have changed: apply them to all topics that follow them."""
        for name in self.names():
            self._configure(self._by_name[name])

    async def close(self) -> None:
        """Finish removals, then close every partition. The data directory closes the logs."""
        with suppress(ValueError):
            self.feed.listeners.remove(self._follow)
        if self._opening is not None:
            self._opening.cancel()
            await wait((self._opening,))
        while tasks := [task for _, tasks in sorted(self._removals.items()) for task in tasks]:
            await gather(*tasks)
        for partition in self.partitions():
            await partition.close()
        if self._owns_feed:
            await self.feed.close()

    # --- inside: apply ---------------------------------------------------------------------------------------

    def _follow(self, delta: ImageDelta) -> None:
        """Apply changes of the cluster."""
        if delta.configs:
            dynamic_configs.follow(self._image, self._config)
            self.follow_broker()
        for record in delta.gone.values():
            self._start_removal(record)
        for place in delta.deletions:  # this broker may never have seen these topics
            if place[1] == self._config.node_id and (doomed := self._image.deletions.get(place)) is not None:
                self._start_removal(doomed.value)
        for key in delta.topics:
            if (stored := self._image.topics.get(key)) is not None:
                self._apply_topic(stored)
        for place in delta.partitions:
            if (view := self._image.partition(*place)) is not None:
                self._apply_partition(view)

    def _apply_topic(self, stored: StoredValue[TopicRecord]) -> None:
        """Apply the record of a topic, at the start and while running."""
        record = stored.value
        known = self._by_name.get(record.name)
        if known is None:
            topic = self._topic(record, stored.revision)
            self._by_name[record.name] = self._by_id[topic.topic_id] = topic
            self._partition_count += topic.partition_count
            self._note_codec(topic)
            return
        assert known.record.topic_id == record.topic_id, (known.record, record)
        self._partition_count += len(record.replicas) - known.partition_count
        has_new_configs = record.configs != known.configs
        known.record, known.revision = record, stored.revision
        if has_new_configs:
            self._configure(known)

    def _apply_partition(self, view: PartitionView) -> None:
        """Apply the state of a partition. A single replica is made at its first use; others are made now, to fetch."""
        partition = self.local.get(view.topic_id, view.index)
        if self._config.node_id not in view.replicas:
            if partition is not None:
                del self._by_name[view.topic].opened[view.index]
                self.local.retire(partition)
                self._start_task(view.topic, [view.index], self._remove_replica(partition))
        elif partition is not None:
            self.local.follow(view.place)
        elif len(view.replicas) > 1 and not self._is_being_removed(view.topic, view.index):
            self.partition(view.topic, view.index)

    def _topic(self, record: TopicRecord, revision: int) -> Topic:
        config = topic_configs.in_force(record.configs, self._config)
        return Topic(record=record, revision=revision, topic_id=record.id_bytes, config=config)

    def _configure(self, topic: Topic) -> None:
        topic.config = topic_configs.in_force(topic.configs, self._config)
        self._note_codec(topic)
        for _, partition in sorted(topic.opened.items()):
            if partition.is_open:
                partition.log.config = topic.config

    def _note_codec(self, topic: Topic) -> None:
        if topic.config.compression_type == PRODUCER:
            self.recompressing.discard(topic.record.name)
        else:
            self.recompressing.add(topic.record.name)

    # --- inside: removing ------------------------------------------------------------------------------------

    def _start_removal(self, record: TopicRecord) -> None:
        """Forget a deleted topic now, and start the task that removes its directories and then notes it in the store.

        The topic may be unknown here: other brokers can create and delete it between two updates of the image.
        """
        if record.topic_id in self._unfinished:
            return
        topic = self._by_id.pop(record.id_bytes, None)
        if topic is not None:
            del self._by_name[record.name]
            self.recompressing.discard(record.name)
            self._partition_count -= topic.partition_count
            topic.opened.clear()  # a partition has the configs of its topic: without this cycle both are freed
            for index in range(topic.partition_count) if self._unopened else ():
                self._unopened.pop((record.name, index), None)
        gone = self.local.of(record.topic_id)
        for partition in gone[:RETIRED_AT_ONCE]:
            self.local.retire(partition)
        if gone or any(self._config.node_id in replicas for replicas in record.replicas):
            self._unfinished.add(record.topic_id)
            self._start_task(record.name, range(len(record.replicas)), self._remove(record, gone))

    def _start_task(self, name: str, indices: Sequence[int], removal: Coroutine[Any, Any, None]) -> None:
        """Run a removal. Until it has freed the directories, no partition that uses them is made here."""
        task = get_running_loop().create_task(removal)
        self._removals.setdefault(records.topic_key(name), {})[task] = indices

    def _is_being_removed(self, name: str, index: int) -> bool:
        return any(index in indices for indices in self._removals.get(records.topic_key(name), {}).values())

    async def _remove(self, record: TopicRecord, gone: list[Partition]) -> None:
        with self._freeing_directories(record.name):
            slices = self._turns.slices()
            await slices.each(gone[RETIRED_AT_ONCE:], self.local.retire)
            while gone:
                await gone.pop().close()  # and free it: in one turn all would take long
                if slices.is_over():
                    await slices.next()
            try:
                await self.local.delete_topic(record, has_successor=record.name in self._by_name, slices=slices)
            except NotRemoved as error:  # topic ids keep a new topic of this name from using what remains
                self._world.log.error("topic_not_removed", topic=record.name, error=str(error))
                return
        await self._note_removed(record.topic_id)
        self._world.log.info("topic_deleted", topic=record.name)

    async def _remove_replica(self, partition: Partition) -> None:
        """Remove a replica that was moved to other brokers, with its log."""
        with self._freeing_directories(partition.topic):
            await partition.close()
            await self.local.delete(partition)

    @contextmanager
    def _freeing_directories(self, name: str) -> Iterator[None]:
        """Around a removal: afterwards, make the partitions that own the directories by now.

        These are a replica that has returned, or those of a topic whose name is the same or collides.
        """
        key, task = records.topic_key(name), current_task()
        assert task is not None
        try:
            yield
        finally:
            indices = self._removals[key].pop(task)
            if not self._removals[key]:
                del self._removals[key]
        stored = self._image.topics.get(key)
        if (
            stored is not None and stored.value.id_bytes in self._by_id
        ):  # not followed yet, or not any more: amid `close`
            for index in indices:
                if (view := self._image.partition(stored.value.topic_id, index)) is not None:
                    self._apply_partition(view)

    async def _removed(self, name: str) -> None:
        """Return once the directories of all deleted topics of that name are removed."""
        if removals := list(self._removals.get(records.topic_key(name), ())):
            await wait(removals)
            for removal in removals:
                removal.result()

    async def _note_removed(self, topic_id: str) -> None:
        """Note in the store that this broker has removed a deleted topic; retry until the store is closed."""
        while True:
            try:
                await self._store.transact([], [Delete(records.deletion_key(topic_id, self._config.node_id))])
            except (StoreUnavailableError, OutcomeUnknownError):
                await sleep(RETRY_S)
            except StoreClosedError:
                return  # the next start repeats it
            else:
                self._unfinished.discard(topic_id)
                return

    def _owner(self, name: str, index: int, topic_id: bytes | None) -> PartitionView | None:
        """The partition that owns a directory, or None. Raises WrongDirectory, see `LocalPartitions.check_owner`."""
        topic = self._by_name.get(name)
        if topic is None or index >= topic.partition_count:
            return None
        view = self.view(name, index)
        if topic_id in (topic.topic_id, None):
            return view
        self.local.check_owner(view)
        return None

    # --- inside: persist -------------------------------------------------------------------------------------

    async def _change(
        self, name: str, change: Callable[[TopicRecord], Awaitable[TopicRecord]], validate_only: bool
    ) -> Topic:
        """Decide on the current record and write it if the record is unchanged; otherwise decide again."""
        key = records.topic_key(name)
        is_settled = False
        while True:
            topic = await self.find(name)
            revision = topic.revision
            try:
                record = await change(topic.record)
            except KafkaError:
                if is_settled:
                    raise
                await self._settle(key, validate_only=validate_only)  # the topic may be another one by now
                is_settled = True
                continue
            if validate_only:
                return self._topic(record, ABSENT)
            if await self._transact([Expect(key, revision)], [Put(key, msgspec.json.encode(record))]):
                self._world.log.info(
                    "topic_changed", topic=name, partitions=len(record.replicas), configs=record.configs
                )
                return self.required(name)
            is_settled = False

    async def _transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> bool:
        return await write(self._store, self.feed, expects, changes)

    async def catch_up(self) -> None:
        """Wait until all changes so far are applied here. Raises REQUEST_TIMED_OUT."""
        await catch_up(self.feed)

    async def _settle(self, key: str, *, validate_only: bool) -> None:
        """As `catch_up`, before a refusal: changes of this topic fail that the store applies later."""
        if validate_only:
            await self.catch_up()
            return
        while (stored := self._image.topics.get(key)) is not None:
            value = msgspec.json.encode(stored.value)
            if await stays_as_is(self._store, self.feed, key, value, stored.revision):
                return
        await stays_absent(self._store, self.feed, key)

    async def _forget_states(self, record: TopicRecord) -> None:
        """Delete the partition states of a deleted topic from the store. If that fails, they do no harm."""
        doomed = iter(
            [
                Delete(key)
                for index, replicas in enumerate(record.replicas)
                if len(replicas) > 1
                for key in (
                    records.partition_key(record.topic_id, index),
                    records.reassignment_key(record.topic_id, index),
                )
            ]
        )
        while some := list(islice(doomed, CHANGES_MAX)):
            try:
                await self._store.transact([], some)
            except (StoreUnavailableError, OutcomeUnknownError, StoreClosedError) as error:
                self._world.log.warning("partition_states_not_forgotten", topic=record.name, error=str(error))
                return

    # --- inside: checks --------------------------------------------------------------------------------------

    async def _plan(self, new: NewTopic) -> TopicRecord:
        """The record of a new topic, as the cluster is now. Raises as `create`."""
        plan = topic_plan.create(new, topic_id=self._new_id(), sites=self._sites(), config=self._config)
        record = await self._turns.slices().finish(plan)
        self._check_total(len(record.replicas))
        self._check_room(record.replicas)
        if (known := self._image.topics.get(records.topic_key(new.name))) is not None:
            raise _exists(new.name, known.value.name)
        return record

    def _sites(self) -> Sites:
        """The brokers that replicas can be placed on now."""
        racks = {record.node_id: record.rack for record in self._image.live()}
        load = placement.load(self._image) if len(racks) > 1 else None
        return Sites(racks or {self._config.node_id: ""}, load, [each for each in racks if self._image.hangs(each)])

    def _check_total(self, more: int) -> None:
        most = self._config.limits.partitions_max
        if self._partition_count + more > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the cluster has {self._partition_count} partitions and may have {most}: {more} more are too many",
            )

    def _check_room(self, replicas: Sequence[Sequence[int]]) -> None:
        """Raise KAFKA_STORAGE_ERROR if this broker gets replicas, and its disk has no room for them."""
        if any(self._config.node_id in row for row in replicas):
            self.local.space.check(0)

    def _new_id(self) -> bytes:
        """A random unused id, not all zeros, whose text does not begin with "-" like a command-line option."""
        while True:
            topic_id = self._world.rng.randbytes(16)
            if any(topic_id) and topic_id not in self._by_id and not topic_plan.text_of_id(topic_id).startswith("-"):
                return topic_id


def _exists(name: str, other: str) -> KafkaError:
    if name == other:
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic name {name!r} collides with {other!r}: they differ only in '.' and '_'",
    )
