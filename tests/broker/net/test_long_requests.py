"""Requests with very many elements: other connections are served in between, for every API.

The length of a turn is counted in function calls, so that it does not depend on the machine. A call takes 30 to 100
nanoseconds: the bound below is 5 to 15 milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from broker.wire import Wire, batch
from semel_broker.config.loading import load
from semel_broker.node import Node
from semel_broker.world import World
from semel_protocol.api import API_OF, APIS
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k15_describe_groups import DescribeGroupsRequest
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from semel_protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from semel_protocol.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsRequestResource
from semel_protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsRequestTopic
from semel_protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)
from semel_protocol.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUserName,
)
from semel_protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
)
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from semel_protocol.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from semel_storage.disk.memory_disk import MemoryDisk
from support.tiers import tiered
from support.virtual_loop import VirtualLoop
from support.wide_requests import TOPIC, WIDE_REQUESTS, Wide

CALLS_MAX = 150_000

MANY = 30_000
FEW = 3_000
"""Topics where each request costs much."""

TRANSACTIONAL = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)

NAMES = [f"topic-{n}" for n in range(MANY)]


def wide(name: str) -> Any:
    """This one of `WIDE_REQUESTS`, with many partitions. Only the first three of them exist."""
    (asked,) = (each for each in WIDE_REQUESTS if each.name == name)
    return asked.make(Wide(MANY))


REQUESTS: dict[str, tuple[Any, int]] = {
    "DescribeUserScramCredentials": (
        DescribeUserScramCredentialsRequest(
            users=[DescribeUserScramCredentialsRequestUserName(name=f"user {n}") for n in range(MANY)]
        ),
        0,
    ),
    "DescribeLogDirs": (
        DescribeLogDirsRequest(topics=[DescribeLogDirsRequestTopic(topic=name, partitions=[0]) for name in NAMES]),
        4,
    ),
    "AlterUserScramCredentials": (
        AlterUserScramCredentialsRequest(
            deletions=[
                AlterUserScramCredentialsRequestDeletion(name=f"user {n}", mechanism=1) for n in range(MANY // 2)
            ],
            upsertions=[
                AlterUserScramCredentialsRequestUpsertion(
                    name=f"user {n}", mechanism=2, iterations=4096, salt=b"s", salted_password=b"too short"
                )
                for n in range(MANY // 2, MANY)
            ],
        ),
        0,
    ),
    "Fetch": (
        FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=0,
            topics=[
                FetchRequestTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(MANY)
                    ],
                )
            ],
        ),
        11,
    ),
    "AlterClientQuotas": (
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntry(
                    entity=[AlterClientQuotasRequestEntity(entity_type="user", entity_name=name)],
                    ops=[AlterClientQuotasRequestOp(key="producer_byte_rate", value=1e6, remove=False)],
                )
                for name in NAMES
            ],
            validate_only=True,
        ),
        1,
    ),
    "ListOffsets": (wide("ListOffsets, latest"), 7),
    "Metadata": (MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES]), 7),
    "DescribeTopicPartitions": (
        DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in NAMES]),
        0,
    ),
    "OffsetCommit": (wide("OffsetCommit"), 7),
    "OffsetCommit, of few partitions again and again": (
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=n % 3, committed_offset=n, committed_metadata="")
                    ],
                )
                for n in range(MANY)
            ],
        ),
        7,
    ),
    "OffsetFetch": (
        OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(MANY)))]
        ),
        7,
    ),
    "DescribeGroups": (DescribeGroupsRequest(groups=NAMES), 2),
    "ConsumerGroupDescribe": (
        ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False),
        1,
    ),
    "CreateTopics, validated only": (
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for name in NAMES[:FEW]
            ],
            timeout_ms=1,
            validate_only=True,
        ),
        4,
    ),
    "CreateTopics, many partitions": (
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(
                    name="many", num_partitions=FEW, replication_factor=1, assignments=[], configs=[]
                )
            ],
            validate_only=False,
        ),
        4,
    ),
    "CreateTopics, bad names": (
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(
                    name=f"?{name}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                for name in NAMES
            ],
            timeout_ms=1,
            validate_only=False,
        ),
        4,
    ),
    "DeleteTopics": (DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1), 3),
    "DeleteRecords": (wide("DeleteRecords"), 1),
    "OffsetForLeaderEpoch": (wide("OffsetForLeaderEpoch"), 3),
    "AddPartitionsToTxn": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=TOPIC, partitions=list(range(MANY)))],
        ),
        0,
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequestResource(resource_type=2, resource_name=name, configuration_keys=None)
                for name in (TOPIC, "u", *NAMES)
            ]
        ),
        1,
    ),
    "AlterConfigs": (
        AlterConfigsRequest(
            resources=[AlterConfigsRequestResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES],
            validate_only=False,
        ),
        1,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequestTopic(name=name, count=2, assignments=None) for name in NAMES],
            timeout_ms=1,
            validate_only=False,
        ),
        1,
    ),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=NAMES), 1),
    "ElectLeaders": (wide("ElectLeaders"), 1),
    "OffsetDelete": (wide("OffsetDelete"), 0),
    "DescribeProducers": (wide("DescribeProducers"), 0),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=NAMES), 0),
    "Produce": (
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequestTopic(
                    name=TOPIC,
                    partition_data=[ProduceRequestPartition(index=n % 3, records=batch(b"x")) for n in range(FEW)],
                )
            ],
        ),
        7,
    ),
    "Produce, transactional": (
        ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequestTopic(
                    name=TOPIC,
                    partition_data=[ProduceRequestPartition(index=n % 3, records=TRANSACTIONAL) for n in range(MANY)],
                )
            ],
        ),
        12,
    ),
}

FREQUENT = {
    "AddPartitionsToTxn",
    "CreateTopics, many partitions",
    "DeleteTopics",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "Produce",
    "Produce, transactional",
}
"""The requests that `make test` sends."""


@pytest.fixture
def virtual() -> VirtualLoop:
    return VirtualLoop()


def with_broker(loop: VirtualLoop, talk: Callable[[Node], Any]) -> None:
    async def run() -> None:
        world = World(
            now_ms=lambda: 1_700_000_000_000 + int(loop.time() * 1000),
            monotonic=loop.time,
            rng=Random(1),
            disk=MemoryDisk(),
        )
        settings = {
            "log.dir": "data",
            "port": "0",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }
        node = await Node.start(load(overrides=[f"{name}={value}" for name, value in settings.items()]), world)
        try:
            await talk(node)
        finally:
            await node.stop()

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.proves("one-client-blocks-others")
@pytest.mark.parametrize("name", tiered(REQUESTS, lambda name: name in FREQUENT))
def test_no_turn_of_the_loop_is_long(name: str, virtual: VirtualLoop) -> None:
    async def talk(node: Node) -> None:
        wire, other = await Wire.connect(node.port), await Wire.connect(node.port)
        for topic in (TOPIC, "u"):
            await wire.create_topic(topic, partitions=3)
        request, version = REQUESTS[name]
        await other.call(MetadataRequest(topics=[]))
        wire.send(request, version)
        with virtual.counting_calls() as most:
            frame = asyncio.ensure_future(wire.receive_frame())
            await asyncio.sleep(0)
            turns = 0
            while not frame.done():
                await other.call(MetadataRequest(topics=[]))
                turns += 1
        assert most() < CALLS_MAX, f"{most()} calls in one turn"
        assert turns >= 2, "other requests run in between"
        await wire.close()
        await other.close()

    with_broker(virtual, talk)


def test_requests_with_too_many_elements_are_refused(virtual: VirtualLoop) -> None:
    async def talk(node: Node) -> None:
        wire = await Wire.connect(node.port)
        most = node.broker.config.limits.request_elements_max
        request = DescribeProducersRequest(
            topics=[DescribeProducersRequestTopic(name=TOPIC, partition_indexes=[0] * (most + 1))]
        )
        wire.send(request, 0)
        assert await wire.closed_by_peer()
        await wire.close()

    with_broker(virtual, talk)


def test_every_api_that_can_be_long_is_tested() -> None:
    """Each API whose requests have arrays is in the list above, in `WIDE_REQUESTS`, or below with a reason."""
    from semel_broker.handlers import HANDLERS
    from semel_protocol.fields import Array, fields_of

    few = {
        "JoinGroup": "as many as a member has assignors",
        "SyncGroup": "as many as a group has members",
        "ListConfigResources": "types, of which there are five",
        "IncrementalAlterConfigs": "as AlterConfigs",
        "CreateAcls": "each row gets the same error",
        "DeleteAcls": "each row gets the same error",
        "DescribeClientQuotas": "three types of entity, each once",
        "DecideTransactionGroup": "bounded by transaction_group_members_max",
        "DescribeTransactionGroups": "only those that exist are answered",
    }
    listed = {API_OF[type(request)].name for request, _ in REQUESTS.values()}
    listed |= {APIS[asked.key].name for asked in WIDE_REQUESTS} | set(few)
    for api in API_OF.values():
        has_arrays = any(isinstance(field.type, Array) for field in fields_of(api.request))
        assert not (api.key in HANDLERS and has_arrays) or api.name in listed, api.name
