"""Produce (key 0): append record batches.

KIP-98 (v3), KIP-110 zstd (v7), KIP-467 error messages (v8), KIP-951 leader hints (v10), KIP-890 (v12),
KIP-516 topic ids (v13).
"""

from typing import Annotated

from msgspec import field

from semel_protocol.declaration import Api, ApiKey, Feature
from semel_protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    SharedDefault,
    Uuid,
    on_error,
    since,
    tag,
    until,
)


class ProduceRequestPartition(Message, kw_only=True):
    index: Int32
    records: Records | None


class ProduceRequestTopic(Message, kw_only=True):
    name: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_data: list[ProduceRequestPartition]


class ProduceRequest(Message, kw_only=True):
    transactional_id: str | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[ProduceRequestTopic]


class ProduceResponseRecordError(Message, kw_only=True):
    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class ProduceResponseLeader(SharedDefault, frozen=True, kw_only=True):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class ProduceResponsePartition(Message, kw_only=True):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Annotated[Int64, on_error(-1)] = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[list[ProduceResponseRecordError], since(8)] = []
    error_message: Annotated[str | None, since(8)] = None
    current_leader: Annotated[ProduceResponseLeader, since(10), tag(0)] = field(default_factory=ProduceResponseLeader)


class ProduceResponseTopic(Message, kw_only=True):
    name: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_responses: list[ProduceResponsePartition] = []


class ProduceResponseNodeEndpoint(Message, kw_only=True):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class ProduceResponse(Message, kw_only=True):
    responses: list[ProduceResponseTopic] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[ProduceResponseNodeEndpoint], since(10), tag(0)] = []


API = Api(
    ApiKey.PRODUCE,
    ProduceRequest,
    ProduceResponse,
    declared=(3, 13),
    flexible=9,
    advertised=(0, 7),
    with_feature={Feature.TRANSACTION_VERSION_2: 13},
)
