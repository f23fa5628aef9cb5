"""The replication of one broker: assigns each followed partition to the fetcher of its leader, and owns the rest.

It is called for each change of role (`Topics.listeners`). `sessions` serves the fetches of followers from this broker;
`isr` decides which followers are in sync.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from contextlib import suppress

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.segments.log_config import LogConfig

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import Store
from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.partition import Partition, Role
from semel_broker.replication.fetcher import Fetcher
from semel_broker.replication.isr import IsrKeeper
from semel_broker.replication.peers import Peers
from semel_broker.replication.sessions import Place, Sessions
from semel_broker.replication.throttle import UNBOUNDED, FollowerThrottle, LeaderThrottle, ListedThrottle, Throttle
from semel_broker.topics.topics import Topics
from semel_broker.world import World


class Replicator:
    """One per broker, idle in a broker without a cluster. The owner closes `peers` and `topics` after it."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        store: Store,
        feed: Feed,
        topics: Topics,
        peers: Peers,
        registration: Registration,
    ) -> None:
        self.isr = IsrKeeper(world, config, store, feed, registration)
        now = world.monotonic()
        self._throttle = FollowerThrottle(
            Throttle(lambda: config.replication_quota_bytes_per_second or UNBOUNDED, now),
            ListedThrottle(
                lambda: config.follower_replication_throttled_rate,
                now,
                node_id=config.node_id,
                listed=lambda name: self._log_config(name).follower_replication_throttled_replicas,
            ),
        )
        of_leader = ListedThrottle(
            lambda: config.leader_replication_throttled_rate,
            now,
            node_id=config.node_id,
            listed=lambda name: self._log_config(name).leader_replication_throttled_replicas,
        )
        self._leader_throttle = LeaderThrottle(of_leader, world)
        self.sessions = Sessions(world, self._find, self.isr.follower_fetched, self._leader_throttle)
        self._world = world
        self._config = config
        self._feed = feed
        self._topics = topics
        self._peers = peers
        self._registration = registration
        self._fetchers: dict[int, Fetcher] = {}
        self._source: dict[Partition, int] = {}
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Follow all roles from now on."""
        self.isr.start()
        self._topics.listeners.append(self._on_role)
        for partition in self._topics.local.all():
            self._on_role(partition)
        self._schedule_check()

    async def close(self) -> None:
        """Stop fetching, and answer the fetches that wait."""
        with suppress(ValueError):
            self._topics.listeners.remove(self._on_role)
        if self._timer is not None:
            self._timer.cancel()
        self.sessions.close()
        self._leader_throttle.close()
        await self.isr.close()
        for _, fetcher in sorted(self._fetchers.items()):
            await fetcher.close()

    def _on_role(self, partition: Partition) -> None:
        before = self._source.pop(partition, None)
        if before is not None:
            self._fetchers[before].remove(partition)
        if partition.role is not Role.FOLLOWER or partition.leader < 0 or partition.is_retired or partition.is_offline:
            return
        self._source[partition] = partition.leader
        self._fetcher(partition.leader).add(partition)

    def _fetcher(self, source: int) -> Fetcher:
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            fetcher = self._fetchers[source] = Fetcher(
                source,
                world=self._world,
                config=self._config,
                peers=self._peers,
                registration=self._registration,
                throttle=self._throttle,
                is_in_sync=self._is_in_sync,
            )
            fetcher.start()
        return fetcher

    def _is_in_sync(self, partition: Partition) -> bool:
        view = self._feed.image.partition(partition.topic_id, partition.index)
        return view is not None and self._config.node_id in view.state.isr

    def _log_config(self, name: str) -> LogConfig:
        topic = self._topics.get(name)
        return LogConfig() if topic is None else topic.config

    def _find(self, place: Place) -> Partition:
        topic = self._topics.get_by_id(place[0])
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic with that id is known here: refresh the metadata")
        return self._topics.partition(topic.name, place[1])

    def _schedule_check(self) -> None:
        self._timer = get_running_loop().call_later(self.isr.interval_s, self._check)

    def _check(self) -> None:
        self._schedule_check()
        self.sessions.note_again()
        self.isr.check(
            [partition for partition in self._topics.local.all() if partition.is_leading and not partition.is_offline]
        )
