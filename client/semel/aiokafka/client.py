"""aiokafka's `client`: the connection to a cluster, without producing or consuming."""

from __future__ import annotations

from typing import Any

from semel._config.client import AdminConfig
from semel._config.settings import made
from semel._net.cluster import Cluster
from semel.structs import Metadata

__all__ = ["AIOKafkaClient"]


class AIOKafkaClient:
    """Connects to a cluster and knows its brokers and topics. Takes the settings that all clients have in common.

    Requests of one's own (`send`) are not possible: aiokafka's request classes do not exist here.
    """

    def __init__(self, **settings: Any) -> None:
        self._cluster = Cluster(made(AdminConfig, settings), auto_create_topics=False)

    async def bootstrap(self) -> None:
        """Connect, and read the metadata of all topics. Raises KafkaConnectionError when no server answers."""
        self._cluster.want_all()
        await self._cluster.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.stop()

    async def force_metadata_update(self) -> bool:
        """Read the metadata of all topics again. Raises KafkaTimeoutError."""
        await self._cluster.refresh()
        return True

    @property
    def cluster(self) -> Metadata:
        """The brokers and topics as last read."""
        return self._cluster.metadata
