"""PURE: reads the state of consumer groups and their lag.

The lag of a partition is what lies between the committed offset and the last stable offset, without markers and aborted
records as far as `ReadView.readable_from` knows them. It needs a replica on this broker.
"""

from __future__ import annotations

from collections.abc import Iterator

from semel_protocol.errors import KafkaError

from semel_broker.groups.group import Group
from semel_broker.metrics import families
from semel_broker.metrics.offset_times import OffsetTimes
from semel_broker.metrics.page import Page
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition


def read(node: Node, page: Page, times: OffsetTimes) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    states: dict[str, int] = {}
    lags = Lags(node, times)
    for shard in node.broker.groups.shards.here():
        for group in list(shard.groups.values()):
            membership = group.membership
            states[membership.state_name] = states.get(membership.state_name, 0) + 1
            page.add(families.GROUP_MEMBERS, len(membership.members), group.group_id)
            page.add(families.GROUP_GENERATION, membership.generation_id, group.group_id)
            lags.add(group, page)
            yield
    times.keep(lags.seen)
    for state, count in sorted(states.items()):
        page.add(families.GROUPS, count, state)
    page.add(families.GROUP_UNKNOWN_LAG, lags.unknown)
    for cause, count in sorted(node.broker.counters.groups.rebalances.items()):
        page.add(families.REBALANCES, count, cause)


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
                page.add(families.GROUP_LAG, records, group.group_id, topic)
                page.add(families.GROUP_LAG_SECONDS, round(seconds, 3), group.group_id, topic)

    def _partition(self, topic: str, index: int) -> Partition | None:
        try:
            partition = self._node.broker.topics.partition(topic, index)
        except KafkaError:
            return None
        if (topic, index) not in self.seen:
            self.seen[topic, index] = None
            self._times.note((topic, index), partition.last_stable_offset, self._now)
        return partition
