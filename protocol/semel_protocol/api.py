"""The table of APIs: key -> request, response, versions declared, versions to advertise."""

from __future__ import annotations

from typing import Any

from semel_protocol.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k17_sasl_handshake,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k32_describe_configs,
    k33_alter_configs,
    k36_sasl_authenticate,
    k37_create_partitions,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k47_offset_delete,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k75_describe_topic_partitions,
)
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Codec, Message, codec


class Api:
    """One API of the protocol.

    `low` to `high` are the versions declared (and so decoded); `flexible` is the first version with compact types and
    tag buffers, or None; `advertised` is the range for ApiVersions, or None for an API that no broker of ours offers.
    The advertised minimum is 0 everywhere although versions below `low` are refused: librdkafka up to 2.11 and kcat
    enable features only when the range contains old versions that they never send.
    """

    __slots__ = ("advertised", "flexible", "high", "key", "low", "name", "request", "response")

    def __init__(
        self,
        key: int,
        name: str,
        request: type[Message],
        response: type[Message],
        declared: tuple[int, int],
        flexible: int | None,
        advertised: tuple[int, int] | None,
    ) -> None:
        self.key, self.name, self.request, self.response = key, name, request, response
        self.low, self.high = declared
        self.flexible, self.advertised = flexible, advertised

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} v{self.low}-{self.high}>"

    def is_flexible(self, version: int) -> bool:
        """Whether `version` uses compact types and tag buffers (KIP-482)."""
        return self.flexible is not None and version >= self.flexible

    def declares(self, version: int) -> bool:
        """Whether `version` can be encoded and decoded."""
        return self.low <= version <= self.high

    def request_codec(self, version: int) -> Codec[Message]:
        """The codec of the request's body in `version`."""
        return codec(self.request, version, self.is_flexible(version))

    def response_codec(self, version: int) -> Codec[Message]:
        """The codec of the response's body in `version`."""
        return codec(self.response, version, self.is_flexible(version))

    def encode_request(self, message: Message, version: int) -> bytes:
        """The request's body. Raises ProtocolError when a value does not fit."""
        return self.request_codec(version).encode_bytes(message)

    def encode_response(self, message: Message, version: int) -> bytes:
        """The response's body. Raises ProtocolError when a value does not fit."""
        return self.response_codec(version).encode_bytes(message)

    def decode_request(self, data: Buffer, version: int, at: int = 0) -> Any:
        """The request whose body starts at `at`. Raises ProtocolError."""
        return self.request_codec(version).decode(data, at)

    def decode_response(self, data: Buffer, version: int, at: int = 0) -> Any:
        """The response whose body starts at `at`. Raises ProtocolError."""
        return self.response_codec(version).decode(data, at)


# key, name, request, response, versions declared, first flexible version, versions advertised
_TABLE = (
    Api(0, "Produce", k00_produce.ProduceRequest, k00_produce.ProduceResponse, (3, 12), 9, (0, 7)),
    Api(1, "Fetch", k01_fetch.FetchRequest, k01_fetch.FetchResponse, (4, 12), 12, (0, 11)),
    Api(2, "ListOffsets", k02_list_offsets.ListOffsetsRequest, k02_list_offsets.ListOffsetsResponse, (1, 7), 6, (0, 7)),
    Api(3, "Metadata", k03_metadata.MetadataRequest, k03_metadata.MetadataResponse, (0, 12), 9, (0, 5)),
    Api(
        8,
        "OffsetCommit",
        k08_offset_commit.OffsetCommitRequest,
        k08_offset_commit.OffsetCommitResponse,
        (2, 9),
        8,
        (0, 7),
    ),
    Api(9, "OffsetFetch", k09_offset_fetch.OffsetFetchRequest, k09_offset_fetch.OffsetFetchResponse, (1, 9), 6, (0, 7)),
    Api(
        10,
        "FindCoordinator",
        k10_find_coordinator.FindCoordinatorRequest,
        k10_find_coordinator.FindCoordinatorResponse,
        (0, 4),
        3,
        (0, 2),
    ),
    Api(11, "JoinGroup", k11_join_group.JoinGroupRequest, k11_join_group.JoinGroupResponse, (0, 9), 6, (0, 5)),
    Api(12, "Heartbeat", k12_heartbeat.HeartbeatRequest, k12_heartbeat.HeartbeatResponse, (0, 4), 4, (0, 3)),
    Api(13, "LeaveGroup", k13_leave_group.LeaveGroupRequest, k13_leave_group.LeaveGroupResponse, (0, 5), 4, (0, 3)),
    Api(14, "SyncGroup", k14_sync_group.SyncGroupRequest, k14_sync_group.SyncGroupResponse, (0, 5), 4, (0, 3)),
    Api(
        15,
        "DescribeGroups",
        k15_describe_groups.DescribeGroupsRequest,
        k15_describe_groups.DescribeGroupsResponse,
        (0, 5),
        5,
        (0, 2),
    ),
    Api(16, "ListGroups", k16_list_groups.ListGroupsRequest, k16_list_groups.ListGroupsResponse, (0, 5), 3, (0, 2)),
    Api(
        17,
        "SaslHandshake",
        k17_sasl_handshake.SaslHandshakeRequest,
        k17_sasl_handshake.SaslHandshakeResponse,
        (0, 1),
        None,
        None,
    ),
    Api(
        18, "ApiVersions", k18_api_versions.ApiVersionsRequest, k18_api_versions.ApiVersionsResponse, (0, 4), 3, (0, 4)
    ),
    Api(
        19,
        "CreateTopics",
        k19_create_topics.CreateTopicsRequest,
        k19_create_topics.CreateTopicsResponse,
        (2, 7),
        5,
        (0, 4),
    ),
    Api(
        20,
        "DeleteTopics",
        k20_delete_topics.DeleteTopicsRequest,
        k20_delete_topics.DeleteTopicsResponse,
        (1, 6),
        4,
        (0, 3),
    ),
    Api(
        21,
        "DeleteRecords",
        k21_delete_records.DeleteRecordsRequest,
        k21_delete_records.DeleteRecordsResponse,
        (0, 2),
        2,
        (0, 1),
    ),
    Api(
        22,
        "InitProducerId",
        k22_init_producer_id.InitProducerIdRequest,
        k22_init_producer_id.InitProducerIdResponse,
        (0, 6),
        2,
        (0, 4),
    ),
    Api(
        23,
        "OffsetForLeaderEpoch",
        k23_offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        k23_offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        (2, 4),
        4,
        None,
    ),
    Api(
        24,
        "AddPartitionsToTxn",
        k24_add_partitions_to_txn.AddPartitionsToTxnRequest,
        k24_add_partitions_to_txn.AddPartitionsToTxnResponse,
        (0, 3),
        3,
        (0, 0),
    ),
    Api(
        25,
        "AddOffsetsToTxn",
        k25_add_offsets_to_txn.AddOffsetsToTxnRequest,
        k25_add_offsets_to_txn.AddOffsetsToTxnResponse,
        (0, 4),
        3,
        (0, 0),
    ),
    Api(26, "EndTxn", k26_end_txn.EndTxnRequest, k26_end_txn.EndTxnResponse, (0, 5), 3, (0, 1)),
    Api(
        27,
        "WriteTxnMarkers",
        k27_write_txn_markers.WriteTxnMarkersRequest,
        k27_write_txn_markers.WriteTxnMarkersResponse,
        (1, 1),
        1,
        (0, 1),
    ),
    Api(
        28,
        "TxnOffsetCommit",
        k28_txn_offset_commit.TxnOffsetCommitRequest,
        k28_txn_offset_commit.TxnOffsetCommitResponse,
        (0, 5),
        3,
        (0, 3),
    ),
    Api(
        32,
        "DescribeConfigs",
        k32_describe_configs.DescribeConfigsRequest,
        k32_describe_configs.DescribeConfigsResponse,
        (0, 4),
        4,
        (0, 1),
    ),
    Api(
        33,
        "AlterConfigs",
        k33_alter_configs.AlterConfigsRequest,
        k33_alter_configs.AlterConfigsResponse,
        (0, 2),
        2,
        (0, 1),
    ),
    Api(
        36,
        "SaslAuthenticate",
        k36_sasl_authenticate.SaslAuthenticateRequest,
        k36_sasl_authenticate.SaslAuthenticateResponse,
        (0, 2),
        2,
        None,
    ),
    Api(
        37,
        "CreatePartitions",
        k37_create_partitions.CreatePartitionsRequest,
        k37_create_partitions.CreatePartitionsResponse,
        (0, 3),
        2,
        (0, 1),
    ),
    Api(
        42,
        "DeleteGroups",
        k42_delete_groups.DeleteGroupsRequest,
        k42_delete_groups.DeleteGroupsResponse,
        (0, 2),
        2,
        (0, 1),
    ),
    Api(
        44,
        "IncrementalAlterConfigs",
        k44_incremental_alter_configs.IncrementalAlterConfigsRequest,
        k44_incremental_alter_configs.IncrementalAlterConfigsResponse,
        (0, 1),
        1,
        (0, 0),
    ),
    Api(
        47,
        "OffsetDelete",
        k47_offset_delete.OffsetDeleteRequest,
        k47_offset_delete.OffsetDeleteResponse,
        (0, 0),
        None,
        (0, 0),
    ),
    Api(
        60,
        "DescribeCluster",
        k60_describe_cluster.DescribeClusterRequest,
        k60_describe_cluster.DescribeClusterResponse,
        (0, 1),
        0,
        (0, 1),
    ),
    Api(
        61,
        "DescribeProducers",
        k61_describe_producers.DescribeProducersRequest,
        k61_describe_producers.DescribeProducersResponse,
        (0, 0),
        0,
        (0, 0),
    ),
    Api(
        65,
        "DescribeTransactions",
        k65_describe_transactions.DescribeTransactionsRequest,
        k65_describe_transactions.DescribeTransactionsResponse,
        (0, 0),
        0,
        (0, 0),
    ),
    Api(
        66,
        "ListTransactions",
        k66_list_transactions.ListTransactionsRequest,
        k66_list_transactions.ListTransactionsResponse,
        (0, 2),
        0,
        (0, 1),
    ),
    Api(
        68,
        "ConsumerGroupHeartbeat",
        k68_consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
        k68_consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
        (0, 1),
        0,
        None,
    ),
    Api(
        69,
        "ConsumerGroupDescribe",
        k69_consumer_group_describe.ConsumerGroupDescribeRequest,
        k69_consumer_group_describe.ConsumerGroupDescribeResponse,
        (0, 0),
        0,
        None,
    ),
    Api(
        75,
        "DescribeTopicPartitions",
        k75_describe_topic_partitions.DescribeTopicPartitionsRequest,
        k75_describe_topic_partitions.DescribeTopicPartitionsResponse,
        (0, 0),
        0,
        None,
    ),
)

APIS: dict[int, Api] = {api.key: api for api in _TABLE}
API_OF: dict[type[Message], Api] = {cls: api for api in _TABLE for cls in (api.request, api.response)}
