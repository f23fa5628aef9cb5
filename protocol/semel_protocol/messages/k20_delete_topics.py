"""DeleteTopics (key 20). KIP-4, KIP-516 topic ids (v6)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid, nullable, since, until


class DeleteTopicsRequestTopic(Message, kw_only=True):
    name: str | None = None
    topic_id: Uuid


class DeleteTopicsRequest(Message, kw_only=True):
    topics: Annotated[list[DeleteTopicsRequestTopic], since(6)] = []
    topic_names: Annotated[list[str], since(1), until(5)] = []
    timeout_ms: Int32


class DeleteTopicsResponseTopic(Message, kw_only=True):
    name: Annotated[str | None, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(5)] = None


class DeleteTopicsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: list[DeleteTopicsResponseTopic] = []


API = Api(
    ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, declared=(1, 6), flexible=4, advertised=(0, 6)
)
