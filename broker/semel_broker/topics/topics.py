"""The topics of the cluster, and what may be asked of them: create, grow, configure, delete.

A topic is one key of the store. Every change is decided on a record (`topic_plan`), persisted by compare-and-swap, and
answered once it has come back through the feed, by which all brokers hear of it; so of two that create one name
exactly one wins, whichever brokers they ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import placement, records, topic_plan
from semel_broker.cluster.records import TopicRecord
from semel_broker.cluster.store import (
    ABSENT,
    CHANGES_MAX,
    Change,
    Delete,
    Expect,
    OutcomeUnknownError,
    Put,
    StoreClosedError,
    StoreUnavailableError,
)
from semel_broker.cluster.topic_plan import INTERNAL_TOPICS, NewTopic, Sites
from semel_broker.cluster.writes import catch_up, write
from semel_broker.config.edits import Configs
from semel_broker.partitions.local import STRAY_SUFFIX
from semel_broker.topics.known_topics import KnownTopics, Topic

__all__ = ["STRAY_SUFFIX", "Topic", "Topics"]

FOR_WANT_OF_BROKERS = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


class Topics(KnownTopics):
    """All topics by name, and by id. Made by `open`; `close` last."""

    # --- changing --------------------------------------------------------------------------------------------

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Create a topic; durable when this returns.

        Raises KafkaError 7, 17, 36, 37, 38, 39, 40, 42, 44. With `validate_only` nothing is written and the topic is
        the one that would be.
        """
        key = records.topic_key(new.name)
        is_current = False
        while True:
            try:
                record = topic_plan.create(new, topic_id=self._new_id(), sites=self._sites(), config=self._config)
            except KafkaError as error:
                if is_current or error.code not in FOR_WANT_OF_BROKERS:
                    raise
                await self.catch_up()  # one that has just come may not be known here yet
                is_current = True
                continue
            self._check_total(len(record.replicas))
            if (known := self._image.topics.get(key)) is not None:
                raise _exists(new.name, known.value.name)
            if validate_only:
                return self._topic(record, ABSENT)
            await self._removed(new.name)  # the directories of its predecessor must be out of the way
            if await self._transact([Expect(key)], [Put(key, msgspec.json.encode(record))]):
                break
        topic = self.required(new.name)
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
        """Delete a topic: gone durably when this returns, its files here as well; other brokers remove theirs.

        Raises KafkaError 3, 7.
        """
        while True:
            topic = self.required(name)
            record, key = topic.record, records.topic_key(name)
            holders = sorted({node_id for replicas in record.replicas for node_id in replicas})
            value = msgspec.json.encode(record)
            notes: list[Change] = [Put(records.deletion_key(record.topic_id, node_id), value) for node_id in holders]
            if await self._transact([Expect(key, topic.revision)], [Delete(key), *notes]):
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
        """Grow a topic to `count` partitions. Raises KafkaError 3, 7, 37, 39, 44."""

        def grow(record: TopicRecord) -> TopicRecord:
            grown = topic_plan.grow(record, count, assignments=assignments, sites=self._sites(), config=self._config)
            self._check_total(count - len(record.replicas))
            return grown

        return await self._change(name, grow, validate_only)

    async def alter_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Configs], *, validate_only: bool = False
    ) -> Topic:
        """Give a topic the settings that `edit` makes of its present ones; open logs have them at once.

        Raises KafkaError 3, 7, 40, or what `edit` raises.
        """

        def reconfigure(record: TopicRecord) -> TopicRecord:
            return topic_plan.reconfigure(record, edit(record.configs), self._config)

        return await self._change(name, reconfigure, validate_only)

    # --- inside: persist -------------------------------------------------------------------------------------

    async def _change(self, name: str, change: Callable[[TopicRecord], TopicRecord], validate_only: bool) -> Topic:
        """Decide on the record as it is, persist if it still is so; else decide again."""
        while True:
            topic = self.required(name)
            record = change(topic.record)
            if validate_only:
                return self._topic(record, ABSENT)
            key = records.topic_key(name)
            if await self._transact([Expect(key, topic.revision)], [Put(key, msgspec.json.encode(record))]):
                self._world.log.info(
                    "topic_changed", topic=name, partitions=len(record.replicas), configs=record.configs
                )
                return self.required(name)

    async def _transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> bool:
        return await write(self._store, self.feed, expects, changes)

    async def catch_up(self) -> None:
        """Know all that has happened so far. Raises REQUEST_TIMED_OUT."""
        await catch_up(self.feed)

    async def _forget_states(self, record: TopicRecord) -> None:
        """What the store has on the partitions of a topic that is no more. To leave it there would do no harm."""
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

    def _sites(self) -> Sites:
        """Where replicas can be put now."""
        racks = {record.node_id: record.rack for record in self._image.live()}
        return Sites(racks or {self._config.node_id: ""}, placement.load(self._image) if len(racks) > 1 else None)

    def _check_total(self, more: int) -> None:
        most = self._config.limits.partitions_max
        if self._partition_count + more > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the cluster holds {self._partition_count} partitions and may hold {most}: {more} more are too many",
            )

    def _new_id(self) -> bytes:
        """A random id that is not taken, not all zeros, and not mistaken for an option on a command line."""
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
