"""PURE. What a consumer wants, what it was given, and where it stands in each partition.

A `PartitionState` lives exactly as long as its assignment: whatever arrives for an older one (a fetch response, a
looked-up offset) finds that it is no longer the state in charge, and is dropped. So records of a revoked partition
cannot be handed out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum

from semel_protocol.errors import ErrorCode

from semel._subscription.fetch_buffer import FetchBuffer
from semel._subscription.listener import ConsumerRebalanceListener
from semel.errors import IllegalStateError, KafkaError
from semel.structs import Metadata, TopicPartition


class Mode(Enum):
    """How partitions come to this consumer; only one way at a time."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    MANUAL = "assigned partitions"


class Reset(Enum):
    """How a partition without a position finds one."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    IN_RANGE = "in range"
    """It had one, `lost`, that its leader does not have."""


class PartitionState:
    """One assigned partition.

    position: offset of the next record to hand out, None until it is known; consumed: offset below which every record
    was handed out *and* the application came back for more, which is what auto-commit commits; committed: what the
    group's coordinator was last told, None when unknown. held: a rebalance listener is being asked, nothing is fetched
    or handed out. leader_epoch: of the leader whose log is known to be the one that was read. error: why there are no
    more records, raised to the application until it seeks.
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
        "paused",
        "position",
        "reset",
        "retry_at",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, reset: Reset) -> None:
        self.topic_partition = topic_partition
        self.position: int | None = None
        self.consumed: int | None = None
        self.committed: int | None = None
        self.reset: Reset | None = reset
        self.leader_epoch = -1
        self.lost = -1
        self.paused = False
        self.held = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.fetched_at_ms: int | None = None
        self.error: KafkaError | None = None
        self.retry_at = 0.0
        self.buffer = FetchBuffer(topic_partition)

    @property
    def in_hand(self) -> bool:
        """Records were handed out and the application has not come back since."""
        return self.position != self.consumed

    def seek(self, offset: int) -> None:
        """Go on from `offset`; everything fetched is dropped, and an error that waited to be raised with it."""
        self.position = self.consumed = offset
        self.reset = None
        self.error = None
        self.retry_at = 0.0
        self.buffer.restart(offset)

    def lose_position(self, reset: Reset) -> None:
        """The position is no longer valid; `reset` says where to find one."""
        self.lost = -1 if self.position is None else self.position
        self.position = self.consumed = None
        self.reset = reset
        self.error = None
        self.buffer.restart(None)

    def hold(self) -> None:
        """From now on nothing is handed out; position and consumed stay, to be committed."""
        self.held = True
        self.buffer.restart(self.position)


class Subscription:
    """The wanted topics and the assigned partitions, in assignment order."""

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self.mode = Mode.NONE
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.listener: ConsumerRebalanceListener | None = None
        self.states: dict[TopicPartition, PartitionState] = {}
        self.handed_out: list[PartitionState] = []
        """The partitions whose records are in the application's hands."""
        self._exclude_internal_topics = exclude_internal_topics

    # What is wanted

    def subscribe_topics(self, topics: Sequence[str], listener: ConsumerRebalanceListener | None) -> None:
        """Replaces the topics. Raises IllegalStateError after `assign`."""
        self._enter(Mode.TOPICS)
        self.topics, self.pattern, self.listener = tuple(dict.fromkeys(topics)), None, listener

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None) -> None:
        """All topics whose name matches from its start on, now and later. Raises IllegalStateError after `assign`."""
        self._enter(Mode.PATTERN)
        self.topics, self.pattern, self.listener = (), pattern, listener

    def assign_manually(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the partitions; those that stay keep their positions. Raises IllegalStateError after `subscribe`."""
        self._enter(Mode.MANUAL)
        self.assign(partitions)
        self.topics = tuple(dict.fromkeys(partition.topic for partition in self.states))

    def unsubscribe(self) -> None:
        self.mode, self.topics, self.pattern, self.listener = Mode.NONE, (), None, None
        self.drop(tuple(self.states))

    def _enter(self, mode: Mode) -> None:
        manual = mode is Mode.MANUAL
        if self.mode is not Mode.NONE and (self.mode is Mode.MANUAL) != manual:
            raise IllegalStateError(
                f"the consumer has {self.mode.value}: call unsubscribe() before taking {mode.value}"
            )
        self.mode = mode

    @property
    def is_automatic(self) -> bool:
        """Partitions come from the topics wanted, not from `assign`."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def wanted_topics(self, metadata: Metadata) -> tuple[str, ...]:
        """The topics subscribed to: as named, or as the pattern finds them now."""
        if self.pattern is None:
            return self.topics
        return tuple(
            name
            for name, topic in sorted(metadata.topics.items())
            if self.pattern.match(name) and not (topic.is_internal and self._exclude_internal_topics)
        )

    # What was given

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assignment. What is in both keeps its state: position, buffered records, pause."""
        old = self.states
        wanted = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        self.drop([partition for partition in old if partition not in wanted])
        self.states = {p: old.get(p) or PartitionState(p, Reset.COMMITTED) for p in wanted}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            state = self.states.pop(partition, None)
            if state is not None:
                # Whoever still holds the state (an iteration in progress) finds nothing in it.
                state.buffer.restart(None)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Raises IllegalStateError when the partition is not assigned to this consumer."""
        state = self.states.get(partition)
        if state is None:
            raise IllegalStateError(f"{partition.topic}-{partition.partition} is not assigned to this consumer")
        return state

    def in_charge(self, state: PartitionState) -> bool:
        """Whether `state` is still the assignment's: false once its partition was revoked, even if it came back."""
        return self.states.get(state.topic_partition) is state

    # What may be committed

    def mark_consumed(self) -> None:
        """The application has come back: all that it was handed counts as consumed."""
        for state in self.handed_out:
            state.consumed = state.position
        self.handed_out.clear()

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Consumed positions that the coordinator has not been told yet."""
        chosen = (
            self.states.values() if partitions is None else (self.states[p] for p in partitions if p in self.states)
        )
        return {
            state.topic_partition: state.consumed
            for state in chosen
            if state.consumed is not None and state.consumed != state.committed
        }


def partition_counts(metadata: Metadata, topics: Iterable[str], known: dict[str, int]) -> dict[str, int]:
    """Topic -> partitions, 0 for one that does not exist; what metadata cannot tell at the moment stays as `known`."""
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
