"""Fetch (key 1): read record batches by offset.

KIP-98 isolation (v4), KIP-227 sessions (v7), KIP-320 leader epochs (v9, v12), KIP-392 (v11), KIP-516 topic ids (v13),
KIP-903 replica state (v15): a follower sends the epoch of its registration, so that a leader recognises fetches that
it sent before a restart. KIP-951 addresses of leaders (v16), KIP-853 directory of a replica (v17), KIP-1166
high watermark that a replica knows (v18), which only Kafka's raft reads.

Not in Kafka: `producer_snapshot`, between brokers of semel. A follower below the leader's log start begins anew there,
and gets the producers whose records are deleted: a snapshot file as of that offset.
"""

from typing import Annotated

from msgspec import field

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import (
    ZERO_UUID,
    Int8,
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


class FetchRequestPartition(Message, kw_only=True):
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, since(17), tag(0)] = ZERO_UUID
    high_watermark: Annotated[Int64, since(18), tag(1)] = 2**63 - 1


class FetchRequestTopic(Message, kw_only=True):
    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[FetchRequestPartition]


class FetchRequestForgottenTopic(Message, kw_only=True):
    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[Int32]


class FetchRequestReplicaState(SharedDefault, frozen=True, kw_only=True):
    """`replica_id`: the follower that fetches, -1 for a consumer. `replica_epoch`: its broker epoch, -1 for none."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchRequest(Message, kw_only=True):
    cluster_id: Annotated[str | None, since(12), tag(0)] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[FetchRequestReplicaState, since(15), tag(1)] = field(
        default_factory=FetchRequestReplicaState
    )
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    isolation_level: Int8
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchRequestTopic]
    forgotten_topics_data: Annotated[list[FetchRequestForgottenTopic], since(7)] = []
    rack_id: Annotated[str, since(11)] = ""


class FetchResponseDivergingEpoch(SharedDefault, frozen=True, kw_only=True):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class FetchResponseLeader(SharedDefault, frozen=True, kw_only=True):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class FetchResponseSnapshotId(SharedDefault, frozen=True, kw_only=True):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class FetchResponseAbortedTransaction(Message, kw_only=True):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class FetchResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Annotated[Int64, on_error(-1)] = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[FetchResponseDivergingEpoch, since(12), tag(0)] = field(
        default_factory=FetchResponseDivergingEpoch
    )
    current_leader: Annotated[FetchResponseLeader, since(12), tag(1)] = field(default_factory=FetchResponseLeader)
    snapshot_id: Annotated[FetchResponseSnapshotId, since(12), tag(2)] = field(default_factory=FetchResponseSnapshotId)
    producer_snapshot: Annotated[bytes, since(12), tag(10_000)] = b""
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Annotated[Records | None, on_error(b"")] = None


class FetchResponseTopic(Message, kw_only=True):
    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[FetchResponsePartition] = []


class FetchResponseNodeEndpoint(Message, kw_only=True):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class FetchResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchResponseTopic] = []
    node_endpoints: Annotated[list[FetchResponseNodeEndpoint], since(16), tag(0)] = []


API = Api(ApiKey.FETCH, FetchRequest, FetchResponse, declared=(4, 18), flexible=12, advertised=(0, 18))
