"""The handlers of client requests: one file for each API key.

`APIS` declares the versions of each API. ApiVersions answers from both tables. A handler unpacks the request,
checks it, calls one object of the broker and packs the response:

    async def handle(request: XRequest, ctx: RequestContext) -> XResponse | None

None means that the request gets no answer (Produce with acks=0). A handler may be a plain `def` if it never waits, or
if its effect must happen before the connection starts its next request. It then returns its response or an awaitable of
it. A Produce that must wait before its append returns `InOrder`.

If a handler raises KafkaError, the response carries the error code. If the response has no top-level error code, the
connection is closed. Only Fetch handlers are cancelled when their connection is lost: a request that has begun to
persist a change also applies it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from semel_protocol.schema import Message

from semel_broker.answers import InOrder
from semel_broker.context import RequestContext
from semel_broker.handlers import (
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

Answer = Message | None | Awaitable[Message | None] | InOrder[Any]
Handler = Callable[[Any, RequestContext], Answer]

HANDLERS: dict[int, Handler] = {
    0: k00_produce.handle,
    1: k01_fetch.handle,
    2: k02_list_offsets.handle,
    3: k03_metadata.handle,
    8: k08_offset_commit.handle,
    9: k09_offset_fetch.handle,
    10: k10_find_coordinator.handle,
    11: k11_join_group.handle,
    12: k12_heartbeat.handle,
    13: k13_leave_group.handle,
    14: k14_sync_group.handle,
    15: k15_describe_groups.handle,
    16: k16_list_groups.handle,
    17: k17_sasl_handshake.handle,
    18: k18_api_versions.handle,
    19: k19_create_topics.handle,
    20: k20_delete_topics.handle,
    21: k21_delete_records.handle,
    22: k22_init_producer_id.handle,
    23: k23_offset_for_leader_epoch.handle,
    24: k24_add_partitions_to_txn.handle,
    25: k25_add_offsets_to_txn.handle,
    26: k26_end_txn.handle,
    27: k27_write_txn_markers.handle,
    28: k28_txn_offset_commit.handle,
    29: k29_describe_acls.handle,
    30: k30_create_acls.handle,
    31: k31_delete_acls.handle,
    32: k32_describe_configs.handle,
    33: k33_alter_configs.handle,
    35: k35_describe_log_dirs.handle,
    36: k36_sasl_authenticate.handle,
    37: k37_create_partitions.handle,
    42: k42_delete_groups.handle,
    43: k43_elect_leaders.handle,
    44: k44_incremental_alter_configs.handle,
    45: k45_alter_partition_reassignments.handle,
    46: k46_list_partition_reassignments.handle,
    47: k47_offset_delete.handle,
    48: k48_describe_client_quotas.handle,
    49: k49_alter_client_quotas.handle,
    50: k50_describe_user_scram_credentials.handle,
    51: k51_alter_user_scram_credentials.handle,
    60: k60_describe_cluster.handle,
    61: k61_describe_producers.handle,
    65: k65_describe_transactions.handle,
    66: k66_list_transactions.handle,
    68: k68_consumer_group_heartbeat.handle,
    69: k69_consumer_group_describe.handle,
    71: k71_get_telemetry_subscriptions.handle,
    72: k72_push_telemetry.handle,
    74: k74_list_config_resources.handle,
    75: k75_describe_topic_partitions.handle,
    20_001: k20001_begin_transaction_group.handle,
    20_002: k20002_decide_transaction_group.handle,
    20_003: k20003_describe_transaction_groups.handle,
    20_004: k20004_forget_transaction_group.handle,
}
"""API key -> handler."""

LONG_ANSWERS = frozenset({3, 9, 11, 15, 16, 27, 32, 35, 43, 45, 46, 48, 50, 61, 65, 66, 69, 74, 75, 20_003})
"""Keys of APIs whose response may be long although the request is short: the response is encoded in slices."""
