"""aiokafka's `admin.client`: the Admin, with aiokafka's arguments and results."""

# mypy: disable-error-code="override"
# The results are aiokafka's, not those of Admin.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from semel._admin import configs as _configs
from semel._admin import topics as _topics
from semel._config.arguments import checked
from semel._config.client import AdminConfig, describe_settings
from semel.admin import Admin, ConfigResource, NewPartitions, NewTopic
from semel.aiokafka.admin import responses
from semel.aiokafka.client import AIOKafkaClient
from semel.aiokafka.given_loop import GivenLoop
from semel.structs import OffsetAndMetadata, TopicPartition

__all__ = ["AIOKafkaAdminClient"]

GROUP = 0
NO_OFFSET = OffsetAndMetadata(-1)


class AIOKafkaAdminClient(Admin):
    """`semel.Admin` with the results of aiokafka's admin client.

    As in aiokafka, what a broker refuses has an error code in the results of `create_topics`, `delete_topics`,
    `describe_topics`, `describe_configs` and `alter_configs`. All other errors are raised.

    Calls of Admin that aiokafka does not have are there too, with Admin's results.
    """

    def __init__(self, *unnamed: object, **settings: Any) -> None:
        self._given_loop = GivenLoop(settings.pop("loop", None))
        super().__init__(*unnamed, **settings)

    describe_settings(__init__, AdminConfig)

    async def start(self) -> None:
        """Connect to the cluster. Calling it again has no effect. Raises KafkaConnectionError."""
        self._given_loop.check("AIOKafkaAdminClient")
        if not self._life.is_running:
            await super().start()

    @property
    def _coded(self) -> responses.CodedCalls:
        return responses.CodedCalls(self._calls.cluster)

    @property
    def _client(self) -> AIOKafkaClient:
        return AIOKafkaClient.of(self._cluster)

    @checked
    async def create_topics(
        self, new_topics: Sequence[NewTopic], timeout_ms: float | None = None, validate_only: bool = False
    ) -> responses.TopicErrorsResponse:
        """As `Admin.create_topics`. Returns an object with `topic_errors`."""
        return responses.topics_done(await _topics.create_topics(self._coded, new_topics, timeout_ms, validate_only))

    @checked
    async def delete_topics(
        self, topics: Sequence[str], timeout_ms: float | None = None
    ) -> responses.DeleteTopicsResponse:
        """As `Admin.delete_topics`. Returns an object with `topic_error_codes`."""
        return responses.topics_deleted(await _topics.delete_topics(self._coded, topics, timeout_ms))

    @checked
    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> responses.TopicErrorsResponse:
        """As `Admin.create_partitions`. Returns an object with `topic_errors`."""
        await super().create_partitions(topic_partitions, timeout_ms, validate_only)
        return responses.topics_done(dict.fromkeys(topic_partitions))

    @checked
    async def describe_topics(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """As `Admin.describe_topics`. Each topic is a dict with topic, is_internal and partitions."""
        found = await _topics.describe_topics(self._coded, topics)
        names = [topic.name for topic in found] if topics is None else topics
        return [responses.topic_described(name, topic) for name, topic in zip(names, found, strict=True)]

    async def describe_cluster(self) -> dict[str, Any]:
        """As `Admin.describe_cluster`. A dict with brokers, cluster_id and controller_id."""
        return responses.cluster_described(await super().describe_cluster())

    @checked
    async def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> list[responses.ResourcesResponse]:
        """As `Admin.describe_configs`. One response for each broker that is named, and one for all topics."""
        found = await _configs.describe_configs(self._coded, config_resources, include_synonyms, include_documentation)
        return responses.configs_described(config_resources, found)

    @checked
    async def alter_configs(
        self, config_resources: Sequence[ConfigResource], validate_only: bool = False
    ) -> list[responses.ResourcesResponse]:
        """As `Admin.alter_configs`: changes the named settings and no others."""
        return responses.configs_altered(await _configs.alter_configs(self._coded, config_resources, validate_only))

    @checked
    async def find_coordinator(self, group_id: str, coordinator_type: int = GROUP) -> int:
        """The node id of the coordinator of a group, or with type 1 of a transactional id."""
        self._calls.cluster.forget_coordinator(group_id, coordinator_type)
        return await self._calls.cluster.coordinator(group_id, coordinator_type)

    async def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """As `Admin.list_consumer_groups`: pairs of a group's name and its protocol type."""
        return [(each.group_id, each.protocol_type) for each in await super().list_consumer_groups(broker_ids)]

    async def describe_consumer_groups(
        self,
        group_ids: Sequence[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[responses.DescribeGroupsResponse]:
        """As `Admin.describe_consumer_groups`, which finds the coordinators. Authorized operations are not given."""
        return responses.groups_described(await super().describe_consumer_groups(group_ids))

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, of all partitions or of these; -1 for one of these without an offset."""
        asked = None if not partitions else [TopicPartition(*each) for each in partitions]
        found = await super().list_consumer_group_offsets(group_id, asked)
        return found if asked is None else {each: found.get(each, NO_OFFSET) for each in asked}
