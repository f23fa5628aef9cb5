"""Metadata (key 3): brokers, topics, leaders.

KIP-4; leader epochs from v7 (KIP-320), topic ids from v10 (KIP-516), error of the whole response from v13
(KIP-1102).

The tag 10000 is semel's own.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid, nullable, since, tag, until

ASKED_BY_ID_FROM = 12
"""The first version that asks for a topic by its id. The field of the id is older."""


class MetadataRequestTopic(Message, kw_only=True):
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    name: Annotated[str | None, nullable(10)]


class MetadataRequest(Message, kw_only=True):
    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)]
    allow_auto_topic_creation: Annotated[bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[bool, since(8)] = False


class MetadataResponseBroker(Message, kw_only=True):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, since(1)] = None


class MetadataResponsePartition(Message, kw_only=True):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], since(5)] = []


class MetadataResponseTopic(Message, kw_only=True):
    error_code: Int16 = 0
    name: Annotated[str | None, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    is_internal: Annotated[bool, since(1)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = -2147483648
    error_code: Annotated[Int16, since(13)] = 0
    principal: Annotated[str, since(9), tag(10_000)] = ""
    """Of semel, where there is an authorizer: the principal of the connection. Errors without a text leave it to
    the client to name the principal."""


API = Api(ApiKey.METADATA, MetadataRequest, MetadataResponse, declared=(0, 13), flexible=9, advertised=(0, 13))
