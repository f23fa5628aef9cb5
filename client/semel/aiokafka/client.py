"""aiokafka's `client`: the connection to a cluster, without producing or consuming."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from semel._config.client import AdminConfig, ClientConfig
from semel._config.settings import made
from semel._net.cluster import Cluster
from semel._net.lifecycle import ConnectionParts, Lifecycle
from semel.aiokafka.cluster import ClusterMetadata
from semel.aiokafka.setting_attributes import SettingAttributes
from semel.errors import KafkaTimeoutError

__all__ = ["AIOKafkaClient"]


class AIOKafkaClient(SettingAttributes):
    """Connects to a cluster and knows its brokers and topics. Takes the settings that all clients have in common.

    Requests of one's own (`send`) are not possible: aiokafka's request classes do not exist here.
    """

    def __init__(self, **settings: Any) -> None:
        self._config: ClientConfig = made(AdminConfig, settings)
        self._cluster = Cluster(self._config)
        self._life = Lifecycle(self, "client", self._config.client_id, parts=ConnectionParts(self._cluster))
        self._topics: dict[str, None] | None = {}

    @classmethod
    def of(cls, cluster: Cluster) -> AIOKafkaClient:
        """The client inside a producer, consumer or admin client, which starts and stops it."""
        client = cls.__new__(cls)
        client._cluster, client._config = cluster, cluster.config
        client._life = Lifecycle(client, "client", cluster.config.client_id, parts=ConnectionParts(cluster))
        client._topics = None
        return client

    async def bootstrap(self) -> None:
        """Connect, and read the metadata of all topics. Raises KafkaConnectionError when no server answers."""
        self._cluster.want_all()
        await self._life.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._life.stop()

    async def force_metadata_update(self) -> bool:
        """Read the metadata again. False when no broker answers within max_block_ms."""
        try:
            await self._cluster.refresh()
        except KafkaTimeoutError:
            return False
        return True

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """The metadata of all topics. Raises KafkaTimeoutError."""
        self._cluster.want_all()
        await self._cluster.refresh()
        return self.cluster

    def _want(self, topics: Iterable[str]) -> None:
        """With topics of its own the client reads their metadata only, as aiokafka's."""
        if self._topics is None:
            self._cluster.want(topics)
        else:
            self._topics.update(dict.fromkeys(topics))
            self._cluster.want_only(self._topics)

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        self._want([topic])
        found = await self._cluster.wait_for_topic(topic)
        return {each.partition for each in found.partitions}

    def add_topic(self, topic: str) -> Awaitable[bool]:
        """Add a topic to those whose metadata is read. The result is true once it was read."""
        self._want([topic])
        return asyncio.ensure_future(self.force_metadata_update())

    def set_topics(self, topics: Iterable[str]) -> Awaitable[bool]:
        """Read the metadata of these topics from now on; without any, of all topics."""
        listed = dict.fromkeys(topics)
        if self._topics is not None:
            self._topics = listed
        if listed:
            self._cluster.want_only(listed)
        else:
            self._cluster.want_all()
        return asyncio.ensure_future(self.force_metadata_update())

    @property
    def _bootstrap_servers(self) -> str | Iterable[str]:
        given = self._cluster.config.bootstrap_servers
        return given if isinstance(given, str) else list(given)

    @property
    def cluster(self) -> ClusterMetadata:
        """The brokers and topics as last read."""
        return ClusterMetadata(lambda: self._cluster.metadata)
