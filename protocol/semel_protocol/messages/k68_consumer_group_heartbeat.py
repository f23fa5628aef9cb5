"""ConsumerGroupHeartbeat (key 68): the new group protocol. KIP-848."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid, since

OWN_MEMBER_ID_FROM = 1
"""From this version on the client makes the member id (KIP-1082). It also has regular expressions."""


class ConsumerGroupHeartbeatRequestTopicPartitions(Message, kw_only=True):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Message, kw_only=True):
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, since(1)] = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


class ConsumerGroupHeartbeatResponseTopicPartitions(Message, kw_only=True):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatResponseAssignment(Message, kw_only=True):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = []


class ConsumerGroupHeartbeatResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = None


API = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    declared=(0, 1),
    flexible=0,
    advertised=(0, 1),
    needs_feature=Feature.GROUP_VERSION_1,
)
