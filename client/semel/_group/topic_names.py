"""Resolves the topic ids of assignments to names, by Metadata requests of its own (KIP-516)."""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.messages.k03_metadata import (
    ASKED_BY_ID_FROM,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

from semel._net.cluster import ANSWER_TIMEOUT_MS, Cluster
from semel.errors import UnsupportedVersionError


class TopicNames:
    """The names known so far. A topic id never changes its name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: dict[bytes, str] = {}

    def get(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def keep(self, topic_ids: Iterable[bytes]) -> None:
        """Forget all other topics."""
        self._names = {topic_id: self._names[topic_id] for topic_id in topic_ids if topic_id in self._names}

    async def resolve(self, topic_ids: Iterable[bytes]) -> None:
        """Ask a broker once. An id that it does not know yet, or that has no name for this client, stays unknown.

        Raises KafkaConnectionError, KafkaTimeoutError, UnsupportedVersionError.
        """
        connection = await self._cluster.any_connection()
        if not connection.serves(MetadataRequest, ASKED_BY_ID_FROM):
            raise UnsupportedVersionError(
                f"{connection.name} does not serve Metadata v{ASKED_BY_ID_FROM}, which names topics by id: "
                "use group_protocol='classic'"
            )
        answer: MetadataResponse = await connection.request(
            MetadataRequest(
                topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids],
                allow_auto_topic_creation=False,
            ),
            timeout_ms=min(self._cluster.config.request_timeout_ms, ANSWER_TIMEOUT_MS),
            version_max=ASKED_BY_ID_FROM,
        )
        for topic in answer.topics:
            if topic.name and not topic.error_code:
                self._names[topic.topic_id] = topic.name
