"""What all groups of a broker share: its settings, the topics that they may read, the connections of their members."""

from __future__ import annotations

from asyncio import get_running_loop
from functools import partial
from typing import TYPE_CHECKING

from semel_protocol.schema import ZERO_UUID

from semel_broker.config import group_configs
from semel_broker.config.loading import BrokerConfig
from semel_broker.counters.coordinators import GroupCounters
from semel_broker.groups.connections import MemberConnections
from semel_broker.groups.consumer.model import TopicFacts
from semel_broker.groups.consumer.requests import Catalog
from semel_broker.groups.offsets.model import CommittedOffset
from semel_broker.scheduling.turns import Turns
from semel_broker.topics import dynamic_configs
from semel_broker.topics.topics import Topics
from semel_broker.world import World

if TYPE_CHECKING:
    from semel_broker.coordination.shards import Shards
    from semel_broker.groups.shard import GroupShard


class GroupContext:
    """The surroundings of the groups on this broker. `turns` evaluates regular expressions in slices."""

    shards: Shards[GroupShard]
    """Set by the coordinator, which makes them with this context."""

    def __init__(self, world: World, config: BrokerConfig, topics: Topics, counters: GroupCounters) -> None:
        self.world = world
        self.config = config
        self.topics = topics
        self.counters = counters
        self.connections = MemberConnections()
        self.turns = Turns(get_running_loop(), world.monotonic)
        self.catalog = Catalog(0, partial(_facts, topics), topics.names)
        """The topics that groups of the consumer protocol may read."""

    def topics_changed(self) -> None:
        """Topics were made, changed or deleted: groups look at theirs again."""
        self.catalog = Catalog(self.catalog.version + 1, self.catalog.get, self.catalog.names)

    def session_timeout_ms(self, group_id: str) -> int:
        """The session timeout of members of the consumer protocol in this group."""
        return self._setting(group_id, group_configs.SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The interval of the heartbeats of members of the consumer protocol in this group."""
        return self._setting(group_id, group_configs.HEARTBEAT_INTERVAL)

    def offset_count(self) -> int:
        """The committed offsets of all groups here, and those of open transactions."""
        return sum(shard.offset_store.count for shard in self.shards.here())

    def is_of_current_topic(self, topic: str, committed: CommittedOffset) -> bool:
        """Whether the offset was committed for the topic that has this name now, not for a deleted one (KIP-516)."""
        known = self.topics.get(topic)
        return known is not None and committed.topic_id in (known.topic_id, ZERO_UUID)

    def _setting(self, group_id: str, name: str) -> int:
        given = dynamic_configs.given_for_group(self.topics.feed.image, group_id)
        return group_configs.in_force(name, given, self.config)


def _facts(topics: Topics, name: str) -> TopicFacts | None:
    topic = topics.get(name)
    return TopicFacts(topic.topic_id, topic.partition_count) if topic is not None else None
