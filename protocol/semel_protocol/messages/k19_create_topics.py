"""CreateTopics (key 19). KIP-4, KIP-464 defaults (v4), KIP-525 (v5), KIP-516 topic ids (v7)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import ZERO_UUID, Int8, Int16, Int32, Message, Uuid, since, tag


class CreateTopicsRequestAssignment(Message, kw_only=True):
    partition_index: Int32
    broker_ids: list[Int32]


class CreateTopicsRequestConfig(Message, kw_only=True):
    name: str
    value: str | None


class CreateTopicsRequestTopic(Message, kw_only=True):
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreateTopicsRequestAssignment]
    configs: list[CreateTopicsRequestConfig]


class CreateTopicsRequest(Message, kw_only=True):
    topics: list[CreateTopicsRequestTopic]
    timeout_ms: Int32 = 60000
    validate_only: bool


class CreateTopicsResponseConfig(Message, kw_only=True):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


class CreateTopicsResponseTopic(Message, kw_only=True):
    name: str = ""
    topic_id: Annotated[Uuid, since(7)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = None
    topic_config_error_code: Annotated[Int16, since(5), tag(0)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[list[CreateTopicsResponseConfig] | None, since(5)] = None


class CreateTopicsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: list[CreateTopicsResponseTopic] = []


API = Api(
    ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, declared=(2, 7), flexible=5, advertised=(0, 7)
)
