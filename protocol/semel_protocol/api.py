"""The table of APIs: for each key the request, the response, the declared and the advertised versions."""

from __future__ import annotations

from types import ModuleType
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
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k36_sasl_authenticate,
    k37_create_partitions,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k48_describe_client_quotas,
    k49_alter_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k20001_begin_transaction_group,
    k20002_decide_transaction_group,
    k20003_describe_transaction_groups,
    k20004_forget_transaction_group,
)
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Codec, Message, codec


class Api:
    """One API of the protocol.

    `low` to `high` are the declared versions, which can be encoded and decoded. `flexible` is the first version with
    compact types and tag buffers (KIP-482), or None. `advertised` is the version range in ApiVersions, or None for an
    API that the broker does not offer. The advertised minimum is 0 although versions below `low` are refused:
    librdkafka up to 2.11 and kcat enable features only if the range contains old versions, which they never send.
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


def _api(
    key: int,
    name: str,
    messages: ModuleType,
    declared: tuple[int, int],
    flexible: int | None,
    advertised: tuple[int, int] | None,
) -> Api:
    request, response = getattr(messages, name + "Request"), getattr(messages, name + "Response")
    return Api(key, name, request, response, declared, flexible, advertised)


# key, name, messages, versions declared, first flexible version, versions advertised
_TABLE = (
    _api(0, "Produce", k00_produce, (3, 13), 9, (0, 7)),
    _api(1, "Fetch", k01_fetch, (4, 18), 12, (0, 18)),
    _api(2, "ListOffsets", k02_list_offsets, (1, 11), 6, (0, 11)),
    _api(3, "Metadata", k03_metadata, (0, 13), 9, (0, 13)),
    _api(8, "OffsetCommit", k08_offset_commit, (2, 10), 8, (0, 7)),
    _api(9, "OffsetFetch", k09_offset_fetch, (1, 10), 6, (0, 7)),
    _api(10, "FindCoordinator", k10_find_coordinator, (0, 6), 3, (0, 6)),
    _api(11, "JoinGroup", k11_join_group, (0, 9), 6, (0, 9)),
    _api(12, "Heartbeat", k12_heartbeat, (0, 4), 4, (0, 4)),
    _api(13, "LeaveGroup", k13_leave_group, (0, 5), 4, (0, 5)),
    _api(14, "SyncGroup", k14_sync_group, (0, 5), 4, (0, 5)),
    _api(15, "DescribeGroups", k15_describe_groups, (0, 6), 5, (0, 2)),
    _api(16, "ListGroups", k16_list_groups, (0, 5), 3, (0, 2)),
    _api(17, "SaslHandshake", k17_sasl_handshake, (0, 1), None, (0, 1)),
    _api(18, "ApiVersions", k18_api_versions, (0, 4), 3, (0, 4)),
    _api(19, "CreateTopics", k19_create_topics, (2, 7), 5, (0, 7)),
    _api(20, "DeleteTopics", k20_delete_topics, (1, 6), 4, (0, 6)),
    _api(21, "DeleteRecords", k21_delete_records, (0, 2), 2, (0, 2)),
    _api(22, "InitProducerId", k22_init_producer_id, (0, 6), 2, (0, 4)),
    _api(23, "OffsetForLeaderEpoch", k23_offset_for_leader_epoch, (2, 4), 4, (0, 4)),
    _api(24, "AddPartitionsToTxn", k24_add_partitions_to_txn, (0, 5), 3, (0, 3)),
    _api(25, "AddOffsetsToTxn", k25_add_offsets_to_txn, (0, 4), 3, (0, 4)),
    _api(26, "EndTxn", k26_end_txn, (0, 5), 3, (0, 1)),
    _api(27, "WriteTxnMarkers", k27_write_txn_markers, (1, 1), 1, (0, 1)),
    _api(28, "TxnOffsetCommit", k28_txn_offset_commit, (0, 6), 3, (0, 3)),
    _api(29, "DescribeAcls", k29_describe_acls, (1, 3), 2, (0, 3)),
    _api(30, "CreateAcls", k30_create_acls, (1, 3), 2, (0, 3)),
    _api(31, "DeleteAcls", k31_delete_acls, (1, 3), 2, (0, 3)),
    _api(32, "DescribeConfigs", k32_describe_configs, (0, 4), 4, (0, 4)),
    _api(33, "AlterConfigs", k33_alter_configs, (0, 2), 2, (0, 2)),
    _api(35, "DescribeLogDirs", k35_describe_log_dirs, (1, 5), 2, (0, 5)),
    _api(36, "SaslAuthenticate", k36_sasl_authenticate, (0, 2), 2, (0, 2)),
    _api(37, "CreatePartitions", k37_create_partitions, (0, 3), 2, (0, 3)),
    _api(42, "DeleteGroups", k42_delete_groups, (0, 3), 2, (0, 3)),
    _api(43, "ElectLeaders", k43_elect_leaders, (0, 2), 2, (0, 2)),
    _api(44, "IncrementalAlterConfigs", k44_incremental_alter_configs, (0, 1), 1, (0, 1)),
    _api(45, "AlterPartitionReassignments", k45_alter_partition_reassignments, (0, 1), 0, (0, 1)),
    _api(46, "ListPartitionReassignments", k46_list_partition_reassignments, (0, 0), 0, (0, 0)),
    _api(47, "OffsetDelete", k47_offset_delete, (0, 0), None, (0, 0)),
    _api(48, "DescribeClientQuotas", k48_describe_client_quotas, (0, 1), 1, (0, 1)),
    _api(49, "AlterClientQuotas", k49_alter_client_quotas, (0, 1), 1, (0, 1)),
    _api(50, "DescribeUserScramCredentials", k50_describe_user_scram_credentials, (0, 0), 0, (0, 0)),
    _api(51, "AlterUserScramCredentials", k51_alter_user_scram_credentials, (0, 0), 0, (0, 0)),
    _api(60, "DescribeCluster", k60_describe_cluster, (0, 2), 0, (0, 2)),
    _api(61, "DescribeProducers", k61_describe_producers, (0, 0), 0, (0, 0)),
    _api(65, "DescribeTransactions", k65_describe_transactions, (0, 0), 0, (0, 0)),
    _api(66, "ListTransactions", k66_list_transactions, (0, 2), 0, (0, 2)),
    _api(68, "ConsumerGroupHeartbeat", k68_consumer_group_heartbeat, (0, 1), 0, (0, 1)),
    _api(69, "ConsumerGroupDescribe", k69_consumer_group_describe, (0, 1), 0, (0, 1)),
    _api(71, "GetTelemetrySubscriptions", k71_get_telemetry_subscriptions, (0, 0), 0, (0, 0)),
    _api(72, "PushTelemetry", k72_push_telemetry, (0, 0), 0, (0, 0)),
    _api(74, "ListConfigResources", k74_list_config_resources, (0, 1), 0, (0, 1)),
    _api(75, "DescribeTopicPartitions", k75_describe_topic_partitions, (0, 0), 0, (0, 0)),
    # semel's own APIs, under keys that Kafka does not use
    _api(20_001, "BeginTransactionGroup", k20001_begin_transaction_group, (0, 0), 0, (0, 0)),
    _api(20_002, "DecideTransactionGroup", k20002_decide_transaction_group, (0, 0), 0, (0, 0)),
    _api(20_003, "DescribeTransactionGroups", k20003_describe_transaction_groups, (0, 0), 0, (0, 0)),
    _api(20_004, "ForgetTransactionGroup", k20004_forget_transaction_group, (0, 0), 0, (0, 0)),
)

APIS: dict[int, Api] = {api.key: api for api in _TABLE}
API_OF: dict[type[Message], Api] = {cls: api for api in _TABLE for cls in (api.request, api.response)}
