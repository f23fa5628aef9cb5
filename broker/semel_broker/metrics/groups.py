"""PURE: reads the state of consumer groups and their lag.

The lag of a partition is what lies between the committed offset and the last stable offset, without markers and aborted
records as far as `ReadView.readable_from` knows them. It needs a replica on this broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final

from semel_protocol.errors import KafkaError

from semel_broker.groups.group import Group
from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition

SECTION: Final = Section("Groups")
GROUPS = SECTION.gauge("groups", "Consumer groups that this broker coordinates, by state.", "state")
GROUP_MEMBERS = SECTION.gauge("group_members", "Members of the group.", "group")
GROUP_GENERATION = SECTION.gauge(
    "group_generation", "Generation of the group; its epoch in the consumer protocol.", "group"
)
REBALANCES = SECTION.counter(
    "group_rebalances_total", "Rebalances that began, by the cause of the first change.", "cause"
)
GROUP_LAG = SECTION.gauge(
    "group_lag_records",
    "Records that a read_committed consumer still gets, summed over partitions.",
    "group",
    "topic",
)
GROUP_LAG_SECONDS = SECTION.gauge(
    "group_lag_seconds", "Time since the oldest of these records became readable; the largest.", "group", "topic"
)
GROUP_UNKNOWN_LAG = SECTION.gauge(
    "group_partitions_without_lag", "Partitions with committed offsets of which this broker has no replica."
)


SAMPLES_MAX = 240
"""Of one partition. With a scrape every 15 s an hour."""

Place = tuple[str, int]
"""(topic, partition)."""


def read(node: Node, page: Page, times: OffsetTimes) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    states: dict[str, int] = {}
    lags = Lags(node, times)
    for shard in node.broker.groups.shards.here():
        for group in list(shard.groups.values()):
            membership = group.membership
            states[membership.state_name] = states.get(membership.state_name, 0) + 1
            page.add(GROUP_MEMBERS, len(membership.members), group.group_id)
            page.add(GROUP_GENERATION, membership.generation_id, group.group_id)
            lags.add(group, page)
            yield
    times.keep(lags.seen)
    for state, count in sorted(states.items()):
        page.add(GROUPS, count, state)
    page.add(GROUP_UNKNOWN_LAG, lags.unknown)
    for cause, count in sorted(node.broker.counters.groups.rebalances.items()):
        page.add(REBALANCES, count, cause)


class Lags:
    """The lags of one scrape. `seen`: the partitions of which there are committed offsets. `unknown`: how many offsets
    are of partitions without a replica here."""

    def __init__(self, node: Node, times: OffsetTimes) -> None:
        self.seen: dict[tuple[str, int], None] = {}
        self.unknown = 0
        self._node, self._times = node, times
        self._now = node.broker.world.monotonic()

    def add(self, group: Group, page: Page) -> None:
        """Add the lag of a group, by topic."""
        for topic in group.offsets.topics():
            records, seconds, is_known = 0, 0.0, False
            for index, committed in list(group.offsets.of_topic(topic).items()):
                partition = self._partition(topic, index)
                if partition is None or not self._node.broker.groups.context.is_of_current_topic(topic, committed):
                    self.unknown += partition is None
                    continue
                is_known = True
                records += partition.view.readable_from(committed.offset)
                seconds = max(seconds, self._times.lag_s((topic, index), committed.offset, self._now))
            if is_known:
                page.add(GROUP_LAG, records, group.group_id, topic)
                page.add(GROUP_LAG_SECONDS, round(seconds, 3), group.group_id, topic)

    def _partition(self, topic: str, index: int) -> Partition | None:
        try:
            partition = self._node.broker.topics.partition(topic, index)
        except KafkaError:
            return None
        if (topic, index) not in self.seen:
            self.seen[topic, index] = None
            self._times.note((topic, index), partition.last_stable_offset, self._now)
        return partition


class OffsetTimes:
    """Remembers when partitions had which last stable offset: the lag of a group in seconds follows from it.

    It has samples of the end that consumers see. Times are seconds of one clock.
    A lag is exact up to the interval of the samples, and at least the age of the oldest sample.
    """

    def __init__(self) -> None:
        self._samples: dict[Place, deque[tuple[int, float]]] = {}

    def note(self, place: Place, end_offset: int, now: float) -> None:
        """The partition has records below `end_offset` to read."""
        samples = self._samples.setdefault(place, deque(maxlen=SAMPLES_MAX))
        if samples and end_offset < samples[-1][0]:
            samples.clear()  # it was truncated, or is another topic of this name
        if not samples or end_offset > samples[-1][0]:
            samples.append((end_offset, now))

    def lag_s(self, place: Place, committed: int, now: float) -> float:
        """Seconds since the record at `committed` could be read; 0.0: there is none yet, or nothing is known."""
        samples = self._samples.get(place)
        if not samples or committed >= samples[-1][0]:
            return 0.0
        at = bisect_right(samples, committed, key=lambda sample: sample[0])
        return max(0.0, now - samples[at][1])

    def keep(self, places: dict[Place, None]) -> None:
        """Forget all other partitions."""
        self._samples = {place: samples for place, samples in self._samples.items() if place in places}
