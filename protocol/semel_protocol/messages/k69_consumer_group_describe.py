"""ConsumerGroupDescribe (key 69): groups of the consumer protocol. KIP-848; KIP-1099 member type (v1).

The tag 10000 is semel's own.
"""

from typing import Annotated

from msgspec import field

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, Uuid, since, tag


class ConsumerGroupDescribeRequest(Message, kw_only=True):
    group_ids: list[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponseTopicPartitions(Message, kw_only=True):
    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class ConsumerGroupDescribeResponseAssignment(Message, kw_only=True):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = []


class ConsumerGroupDescribeResponseTargetAssignment(Message, kw_only=True):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = []


class ConsumerGroupDescribeResponseMember(Message, kw_only=True):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeResponseAssignment = field(default_factory=ConsumerGroupDescribeResponseAssignment)
    target_assignment: ConsumerGroupDescribeResponseTargetAssignment = field(
        default_factory=ConsumerGroupDescribeResponseTargetAssignment
    )
    member_type: Annotated[Int8, since(1)] = -1
    silent_ms: Annotated[Int64, tag(10_000)] = -1
    """Since the member's last heartbeat or other request that extends its session. -1: not told."""


class ConsumerGroupDescribeResponseGroup(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[ConsumerGroupDescribeResponseMember] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    groups: list[ConsumerGroupDescribeResponseGroup] = []


API = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    declared=(0, 1),
    flexible=0,
    advertised=(0, 1),
    needs_feature=Feature.GROUP_VERSION_1,
)
