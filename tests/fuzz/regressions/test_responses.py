"""Faults of the client found by fuzzing responses, each with the smallest altered answer that showed it."""

from __future__ import annotations

import pytest
from client.fake_broker import FakeBroker
from semel._net.metadata import merged
from semel.admin import Admin
from semel.consumer import Consumer
from semel.errors import KafkaProtocolError, UnsupportedVersionError
from semel.producer import Producer
from semel.structs import Metadata, TopicPartition
from semel_protocol.api import APIS
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from semel_protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdResponse

LIST_OFFSETS, METADATA, INIT_PRODUCER_ID = 2, 3, 22


async def test_version_without_a_needed_field_is_a_client_error() -> None:
    versions = {key: api.advertised for key, api in APIS.items() if api.advertised}
    async with FakeBroker(versions=versions | {METADATA: (0, 0)}) as broker:
        with pytest.raises(UnsupportedVersionError, match="Metadata v0"):
            async with Admin(bootstrap_servers=broker.address) as admin:
                await admin.list_topics()


@pytest.mark.parametrize(("producer_id", "epoch"), [(-5, 0), (7, -1)])
async def test_invalid_producer_id_is_a_client_error(producer_id: int, epoch: int) -> None:
    async def answer(_: object) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    async with FakeBroker() as broker:
        broker.answers[INIT_PRODUCER_ID] = answer
        async with Producer(bootstrap_servers=broker.address) as producer:
            with pytest.raises(KafkaProtocolError, match=f"producer id {producer_id} and epoch {epoch}"):
                await producer.send_and_wait("t", b"x")


@pytest.mark.parametrize("indexes", [[0, 0], [0, 2], [-1, 0], [1]])
def test_partitions_that_are_not_numbered_from_0_are_refused(indexes: list[int]) -> None:
    """With [0, 0] a producer searched for ever for a partition other than 0."""
    rows = [MetadataResponsePartition(partition_index=index, leader_id=0) for index in indexes]
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=rows)])
    with pytest.raises(KafkaProtocolError, match="'t' has the partitions"):
        merged(Metadata(brokers={}, topics={}), answer)


@pytest.mark.parametrize("code", [0, 3])
async def test_offsets_of_partitions_that_were_not_requested_are_ignored(code: int) -> None:
    async def answer(_: object) -> ListOffsetsResponse:
        rows = [
            ListOffsetsResponsePartition(partition_index=0, offset=5),
            ListOffsetsResponsePartition(partition_index=77, offset=6, error_code=code),
        ]
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=rows)])

    async with FakeBroker() as broker:
        broker.answers[LIST_OFFSETS] = answer
        partition = TopicPartition("t", 0)
        async with Consumer(bootstrap_servers=broker.address) as consumer:
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 5
