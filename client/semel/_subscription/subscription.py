"""PURE. The subscription of a consumer, its assignment, and its state in each partition.

An `AssignedPartition` lives exactly as long as its assignment. A fetch response or an offset that arrives for an older
one is dropped, because that state is no longer in charge. So no record of a revoked partition is handed out.

A state belongs to one topic id (KIP-516). A topic that is deleted and created again has another id, and another state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec
from semel_protocol.errors import ErrorCode
from semel_protocol.schema import ZERO_UUID

from semel._subscription.fetch_buffer import DecodedCount, FetchBuffer
from semel._subscription.listener import ConsumerRebalanceListener
from semel.errors import IllegalStateError, KafkaError, TopicAuthorizationFailedError
from semel.structs import Metadata, TopicPartition

FORMER_TOPICS_MAX = 4
"""The states of earlier topics of a name that are kept."""


class Mode(Enum):
    """How partitions come to this consumer. Only one way at a time."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    MANUAL = "assigned partitions"


class Reset(Enum):
    """How a partition without a position gets one."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    IN_RANGE = "in range"
    """Its position, `lost`, is not in the range of its leader."""


class TopicIdPartition(NamedTuple):
    """A partition with the id of its topic; zeros when the id is not known."""

    topic: str
    partition: int
    topic_id: bytes = ZERO_UUID


class NearReplica(msgspec.Struct, frozen=True):
    """A replica to fetch from instead of the leader (KIP-392), in this leader epoch and until this time."""

    node_id: int
    leader_epoch: int
    until: float


class AssignedPartition:
    """One assigned partition.

    topic_id: the id of the topic that everything here belongs to; zeros when brokers do not tell it.
    topic_in_hand: the id of the topic whose records the application got last. It commits offsets of that one.
    position: offset of the next record to hand out, None until it is known.
    consumed: offset below which every record is consumed; auto-commit commits it.
    committed: the offset last committed to the coordinator, None when unknown.
    held: a rebalance listener is running: nothing is fetched or handed out.
    leader_epoch: the epoch of the leader whose log is known to match the records that were read.
    near: the replica that the leader has named for this client's rack.
    lost: the position before it was lost, -1 without one.
    error: the reason why there are no more records. The application gets it until it seeks. A missing right is
    different: it may be granted, so the next call tries again.
    """

    __slots__ = (
        "buffer",
        "committed",
        "consumed",
        "error",
        "fetched_at_ms",
        "held",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "lost",
        "near",
        "paused",
        "position",
        "reset",
        "retry_at",
        "topic_id",
        "topic_id_partition",
        "topic_in_hand",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        reset: Reset,
        decoded: DecodedCount | None = None,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.topic_partition = topic_partition
        self.learn_topic(topic_id)
        self.position: int | None = None
        self.consumed: int | None = None
        self.committed: int | None = None
        self.reset: Reset | None = reset
        self.leader_epoch = -1
        self.near: NearReplica | None = None
        self.lost = -1
        self.paused = False
        self.held = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.fetched_at_ms: int | None = None
        self.error: KafkaError | None = None
        self.retry_at = 0.0
        self.buffer = FetchBuffer(topic_partition, decoded)

    @property
    def in_hand(self) -> bool:
        """Whether records were handed out that the application still processes."""
        return self.position != self.consumed

    def seek(self, offset: int) -> None:
        """Continue from `offset`. Drops all fetched data and a waiting error."""
        self.position = self.consumed = offset
        self.reset = None
        self.error = None
        self.retry_at = 0.0
        self.buffer.restart(offset)

    def learn_topic(self, topic_id: bytes) -> None:
        """The id was not known before."""
        self.topic_id = self.topic_in_hand = topic_id
        self.topic_id_partition = TopicIdPartition(*self.topic_partition, topic_id)

    def sought(self) -> None:
        """The application has chosen this position: it knows the present topic."""
        self.topic_in_hand = self.topic_id

    def hand_out(self, next_offset: int) -> None:
        """The application gets records up to this offset."""
        self.position = next_offset
        self.topic_in_hand = self.topic_id

    def leave_near(self, node_id: int) -> bool:
        """Fetch from the leader again if this broker has been its substitute. Whether it has."""
        was_near = self.near is not None and self.near.node_id == node_id
        if was_near:
            self.near = None
        return was_near

    def take_error(self) -> KafkaError | None:
        """The error to raise now. A missing right is forgotten with it."""
        error = self.error
        if isinstance(error, TopicAuthorizationFailedError):
            self.error = None
        return error

    def lose_position(self, reset: Reset) -> None:
        """The position is not valid any more. reset: how to find a new one."""
        self.lost = -1 if self.position is None else self.position
        self.position = self.consumed = None
        self.reset = reset
        self.error = None
        self.buffer.restart(None)

    def hold(self) -> None:
        """Stop handing out records. Position and consumed offset stay, to be committed."""
        self.held = True
        self.buffer.restart(self.position)


class Subscription:
    """The subscribed topics and the assigned partitions, in order of assignment."""

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self.mode = Mode.NONE
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.listener: ConsumerRebalanceListener | None = None
        self.states: dict[TopicPartition, AssignedPartition] = {}
        self.handed_out: list[AssignedPartition] = []
        """The partitions whose records the application processes now."""
        self._former: dict[TopicPartition, dict[bytes, AssignedPartition]] = {}
        self._exclude_internal_topics = exclude_internal_topics
        self._decoded = DecodedCount()

    # Subscribed topics

    def subscribe_topics(self, topics: Sequence[str], listener: ConsumerRebalanceListener | None) -> None:
        """Replace the topics. Raises IllegalStateError after `assign`."""
        self._enter(Mode.TOPICS)
        self.topics, self.pattern, self.listener = tuple(dict.fromkeys(topics)), None, listener

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None) -> None:
        """Subscribe to all topics whose name matches from its start, present and future ones. Raises
        IllegalStateError after `assign`.
        """
        self._enter(Mode.PATTERN)
        self.topics, self.pattern, self.listener = (), pattern, listener

    def assign_manually(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the partitions; those that stay keep their positions. Raises IllegalStateError after `subscribe`."""
        self._enter(Mode.MANUAL)
        self.assign(partitions)
        self.topics = tuple(dict.fromkeys(partition.topic for partition in self.states))

    def unsubscribe(self) -> None:
        self.mode, self.topics, self.pattern, self.listener = Mode.NONE, (), None, None
        self.drop(tuple(self.states))
        self._former.clear()

    def _enter(self, mode: Mode) -> None:
        manual = mode is Mode.MANUAL
        if self.mode is not Mode.NONE and (self.mode is Mode.MANUAL) != manual:
            raise IllegalStateError(
                f"the consumer has {self.mode.value}: call unsubscribe() before taking {mode.value}"
            )
        self.mode = mode

    @property
    def is_automatic(self) -> bool:
        """Whether partitions come from subscribed topics, not from `assign`."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def wanted_topics(self, metadata: Metadata) -> tuple[str, ...]:
        """The subscribed topics: the given names, or the topics that match the pattern now."""
        if self.pattern is None:
            return self.topics
        return tuple(
            name
            for name, topic in sorted(metadata.topics.items())
            if self.pattern.match(name) and not (topic.is_internal and self._exclude_internal_topics)
        )

    # Assigned partitions

    def assign(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, bytes] | None = None
    ) -> None:
        """Replace the assignment. Partitions in both keep their state: position, buffered records, pause.

        topic_ids: the topics of the partitions, if the coordinator has told them (KIP-848). If not, see `follow`.
        """
        old, ids = self.states, topic_ids or {}
        wanted = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        self.drop([p for p, state in old.items() if p not in wanted or ids.get(p, state.topic_id) != state.topic_id])
        self.states = {p: old.get(p) or self._new_state(p, ids.get(p, ZERO_UUID)) for p in wanted}

    def assign_all(self, partitions: Iterable[TopicPartition]) -> None:
        """As `assign`, for a consumer that has all partitions of its topics. If a topic has fewer than before, it is
        another one, and the former may come back, as in `follow`.
        """
        wanted = dict.fromkeys(partitions)
        topics = {partition.topic for partition in wanted}
        for partition, state in list(self.states.items()):
            if partition not in wanted and partition.topic in topics:
                del self.states[partition]
                self._put_aside(state)
        self.assign(wanted)

    def _new_state(self, partition: TopicPartition, topic_id: bytes) -> AssignedPartition:
        return AssignedPartition(partition, Reset.COMMITTED, self._decoded, topic_id)

    def follow(self, metadata: Metadata) -> list[TopicPartition]:
        """Move each partition to the topic that has its name now. Returns those that were in another topic before.

        The state in the former topic is kept. A broker may lag behind the others and name that topic once more; the
        partition then moves there and back, and loses no position.
        """
        moved = []
        for partition, state in self.states.items():
            topic_id = metadata.topic_id(partition.topic)
            if topic_id in (state.topic_id, ZERO_UUID):
                continue
            is_first = state.topic_id == ZERO_UUID
            former = self._former.get(partition, {}).pop(topic_id, None)
            if is_first and (former is None or state.position is not None):
                state.learn_topic(topic_id)
                continue
            now = self.states[partition] = former or self._new_state(partition, topic_id)
            now.paused, now.held = state.paused, state.held
            now.buffer.restart(now.position)
            if not is_first:
                now.topic_in_hand = state.topic_in_hand
                self._put_aside(state)
                moved.append(partition)
        return moved

    def _put_aside(self, state: AssignedPartition) -> None:
        """Keep the state of a former topic."""
        state.buffer.restart(None)
        former = self._former.setdefault(state.topic_partition, {})
        former[state.topic_id] = state
        if len(former) > FORMER_TOPICS_MAX:
            del former[next(iter(former))]

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._former.pop(partition, None)
            state = self.states.pop(partition, None)
            if state is not None:
                # An iteration in progress may still hold the state: leave no records in it.
                state.buffer.restart(None)

    def state(self, partition: TopicPartition) -> AssignedPartition:
        """Raise IllegalStateError when the partition is not assigned to this consumer, TypeError when it is none."""
        state = self.states.get(partition)
        if state is None and not isinstance(partition, TopicPartition):
            raise TypeError(f"{partition!r} is not a TopicPartition")
        if state is None:
            raise IllegalStateError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
        return state

    @property
    def records_taken(self) -> int:
        """The records handed out so far, from all assignments."""
        return self._decoded.records - sum(state.buffer.left for state in self.states.values())

    @property
    def bytes_decoded(self) -> int:
        """The bytes of all batches of records that were decoded so far, as the broker sent them."""
        return self._decoded.size_bytes

    def in_charge(self, state: AssignedPartition) -> bool:
        """Whether `state` is the state of the current assignment. False once its partition was revoked, even if it
        is assigned again.
        """
        return self.states.get(state.topic_partition) is state

    # Consumed offsets

    def mark_consumed(self) -> None:
        """The application asks for more: all records handed out are consumed."""
        for state in self.handed_out:
            state.consumed = state.position
        self.handed_out.clear()

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Consumed offsets that are not committed yet."""
        chosen = (
            self.states.values() if partitions is None else (self.states[p] for p in partitions if p in self.states)
        )
        return {
            state.topic_partition: state.consumed
            for state in chosen
            if state.consumed is not None and state.consumed != state.committed
        }


def partition_counts(metadata: Metadata, topics: Iterable[str], known: dict[str, int]) -> dict[str, int]:
    """Topic -> number of partitions, 0 for a missing topic. A topic without metadata at the moment keeps its `known`
    count.
    """
    counts: dict[str, int] = {}
    for topic in topics:
        found = metadata.topics.get(topic)
        if found is not None and found.partitions:
            counts[topic] = len(found.partitions)
        elif metadata.errors.get(topic) in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            counts[topic] = 0
        else:
            counts[topic] = known.get(topic, 0)
    return counts
