"""The requests of a coordinator to other brokers: their keys and versions, and the protocol of the connections."""

from __future__ import annotations

from typing import Any, Protocol

from semel_protocol.schema import Message

ADD_PARTITIONS_VERSION = 5
MARKERS_VERSION = 1
DESCRIBE_VERSION = 0
LIST_VERSION = 1


class PeerCalls(Protocol):
    """Sends requests to the peer listeners of other brokers."""

    async def call(self, node_id: int, api_key: int, version: int, message: Message, timeout_ms: int) -> Any:
        """The response of that broker. Raises OSError or KafkaError if there is none within `timeout_ms`."""
        ...


class NoPeers:
    """The peers of a broker that is the only one."""

    async def call(self, node_id: int, api_key: int, version: int, message: Message, timeout_ms: int) -> Any:
        """Raise ConnectionError."""
        raise ConnectionError(f"this broker is alone and has no connection to broker {node_id}")
