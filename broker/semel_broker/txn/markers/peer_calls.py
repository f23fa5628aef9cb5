"""What a coordinator needs of the connections to other brokers."""

from __future__ import annotations

from typing import Any, Protocol

from semel_protocol.schema import Message

ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION = 24, 5
WRITE_TXN_MARKERS, MARKERS_VERSION = 27, 1
DESCRIBE_TRANSACTIONS, DESCRIBE_VERSION = 65, 0
LIST_TRANSACTIONS, LIST_VERSION = 66, 1


class PeerCalls(Protocol):
    """Requests to the listeners that brokers have for each other."""

    async def call(self, node_id: int, api_key: int, version: int, message: Message, timeout_ms: int) -> Any:
        """The answer of that broker. Raises OSError or KafkaError when it cannot be reached or is late."""
        ...


class Nobody:
    """The peers of a broker that is the only one."""

    async def call(self, node_id: int, api_key: int, version: int, message: Message, timeout_ms: int) -> Any:
        """Raises ConnectionError."""
        raise ConnectionError(f"there is no way to broker {node_id}")
