"""Follows the metadata for a consumer: requests the subscribed topics, and reacts to changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from semel._group.consumer_group import AnyGroup, ConsumerGroup
from semel._net.cluster import Cluster
from semel._net.outage import LastingFacts
from semel._subscription.subscription import Mode, Subscription
from semel.structs import TopicPartition

log = logging.getLogger(__name__)

MISSING_TOPIC_REFRESH_MS = 1_000
"""The pause between metadata requests while a subscribed topic does not exist."""


MISSING_S = 1.0
"""A partition that is not in the metadata for so long is missing. It may have been added a moment ago."""
LEADERLESS_S = 5.0
"""A partition without a leader for so long is offline. An election takes less."""


class TopicWatch:
    """Keeps metadata and subscription in step.

    Without a group, assigns all partitions of the subscribed topics.
    """

    def __init__(
        self, cluster: Cluster, subscription: Subscription, group: AnyGroup | None, changed: Callable[[], None]
    ) -> None:
        self._cluster, self._subscription, self._group, self._changed = cluster, subscription, group, changed
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._unreadable: LastingFacts[str] = LastingFacts(cluster.edge)

    async def start(self) -> None:
        """Requests metadata of the subscribed topics. The cluster is connected already."""
        self._running = True
        self._cluster.on_change(self._metadata_changed)
        if self._subscription.mode is not Mode.NONE:
            self._want()
            await self._cluster.refresh()

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def subscription_changed(self) -> None:
        """The application has subscribed, unsubscribed or assigned."""
        if not self._running:
            return
        self._want()
        if self._group is not None:
            self._group.subscription_changed()
        else:
            self._assign_all()

    async def all_topics(self) -> set[str]:
        """The names of all topics, from a new request. Raises KafkaConnectionError, KafkaTimeoutError."""
        return await self._cluster.all_topics(self._cluster.config.request_timeout_ms)

    def _want(self) -> None:
        if self._subscription.mode is Mode.PATTERN:
            self._cluster.want_all()
        else:
            self._cluster.want_only(self._subscription.topics)

    def follow_topics(self) -> None:
        """After a change of metadata or assignment: partitions of a topic that was created again begin anew.

        In the consumer protocol the coordinator tells which topic a partition is of, and assigns the new one.
        """
        if isinstance(self._group, ConsumerGroup) and self._subscription.is_automatic:
            return
        for topic, partition in self._subscription.follow(self._cluster.metadata):
            log.warning("%s-%d: the topic was deleted and created again; reading the new one", topic, partition)

    def _metadata_changed(self) -> None:
        if not self._running:
            return
        self._warn_of_unreadable()
        known = self._cluster.metadata.topics
        if self._timer is None and any(topic not in known for topic in self._subscription.topics):
            self._timer = asyncio.get_running_loop().call_later(MISSING_TOPIC_REFRESH_MS / 1000, self._ask_again)
        if self._group is not None:
            self._group.metadata_changed()
            self._changed()
        else:
            self._assign_all()

    def _warn_of_unreadable(self) -> None:
        """Warn about partitions and patterns that give no records. The cluster warns about missing topics."""
        metadata, subscription = self._cluster.metadata, self._subscription
        found: dict[str, float] = {}
        for topic, index in subscription.states:
            known = metadata.topics.get(topic)
            if known is None:
                continue
            if index >= len(known.partitions):
                count = len(known.partitions)
                found[f"{topic} has no partition {index}: it has {count}, numbered from 0"] = MISSING_S
            elif known.partitions[index].leader < 0:
                found[f"{topic}-{index} has no leader: its replicas are offline, check the brokers"] = LEADERLESS_S
        pattern = subscription.pattern
        if pattern is not None and self._cluster.describes_all and not subscription.wanted_topics(metadata):
            found[f"the pattern {pattern.pattern!r} matches the start of no topic that this principal may see"] = 0.0
        for fact in self._unreadable.due(found):
            log.warning("client %r: %s. Waiting for records", self._cluster.config.client_id, fact)

    def _ask_again(self) -> None:
        self._timer = None
        self._cluster.request_refresh()

    def _assign_all(self) -> None:
        subscription, metadata = self._subscription, self._cluster.metadata
        if subscription.is_automatic:
            wanted = [topic for topic in subscription.wanted_topics(metadata) if topic in metadata.topics]
            # A topic without metadata at the moment keeps its partitions.
            wanted_partitions = [TopicPartition(t, p.partition) for t in wanted for p in metadata.topics[t].partitions]
            kept = [
                partition
                for partition in subscription.states
                if partition.topic in subscription.topics and partition.topic not in metadata.topics
            ]
            subscription.assign_all(wanted_partitions + kept)
        self._changed()
