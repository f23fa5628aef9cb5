"""A transactional producer that speaks the raw wire, in transaction version 1 or 2.

It can also send requests out of order.
"""

from __future__ import annotations

from typing import Any

from broker.members import WireMember
from broker.wire import Wire, batch, produce_request
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceResponsePartition
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
)
from semel_protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from semel_protocol.messages.k26_end_txn import EndTxnRequest
from semel_protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from semel_protocol.schema import ZERO_UUID

PRODUCE_VERSION = {1: 7, 2: 12}
COMMIT_VERSION = {1: 3, 2: 5}
END_VERSION = {1: 1, 2: 5}


class TransactionalProducer:
    """One connection and the identity that it has. `version`: the transaction version."""

    def __init__(self, wire: Wire, version: int = 2, name: str = "tx") -> None:
        self.wire, self.version, self.name = wire, version, name
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int, int], int] = {}

    async def init(self, timeout_ms: int = 60_000) -> TransactionalProducer:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        response = await self.wire.call(request, 4)
        assert response.error_code == 0, response
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return self

    async def add(self, topic: str, *partitions: int) -> int:
        """Send AddPartitionsToTxn, as version 1 has to."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=topic, partitions=list(partitions))],
        )
        response = await self.wire.call(request)
        codes: list[int] = [
            row.partition_error_code for row in response.results_by_topic_v3_and_below[0].results_by_partition
        ]
        return max(codes)

    async def add_group(self, group: str = "g") -> int:
        """Send AddOffsetsToTxn, as version 1 has to."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return int((await self.wire.call(request)).error_code)

    def produce_request(
        self, topic: str, *values: bytes, partition: int = 0, sequence: int | None = None, **fields: Any
    ) -> ProduceRequest:
        place = (topic, partition, self.epoch if self.version == 2 else -1)
        if sequence is None:
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + len(values)
        settings = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
            **fields,
        }
        request = produce_request(topic, batch(*values, **settings), partition=partition)
        request.transactional_id = self.name
        return request

    async def produce(self, topic: str, *values: bytes, partition: int = 0) -> ProduceResponsePartition:
        """Produce the next batch. In version 1 its partition is added before."""
        if self.version == 1:
            assert await self.add(topic, partition) == 0
        return await self.send(self.produce_request(topic, *values, partition=partition))

    async def send(self, request: ProduceRequest, version: int | None = None) -> ProduceResponsePartition:
        response = await self.wire.call(request, version or PRODUCE_VERSION[self.version])
        row: ProduceResponsePartition = response.responses[0].partition_responses[0]
        return row

    async def commit_offsets(
        self, offsets: dict[int, int], *, member: WireMember | None = None, version: int | None = None, **fields: Any
    ) -> list[int]:
        """Send TxnOffsetCommit; in version 1 the group is added before. Returns the code of each partition."""
        if self.version == 1 and version is None:
            assert await self.add_group(fields.get("group_id", "g")) == 0
        request = self.commit_request(offsets, member=member, **fields)
        response = await self.wire.call(request, COMMIT_VERSION[self.version] if version is None else version)
        return [row.error_code for row in response.topics[0].partitions]

    def commit_request(
        self, offsets: dict[int, int], *, member: WireMember | None = None, **fields: Any
    ) -> TxnOffsetCommitRequest:
        rows = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets.items()
        ]
        settings: dict[str, Any] = {
            "transactional_id": self.name,
            "group_id": "g",
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [
                TxnOffsetCommitRequestTopic(
                    name=fields.pop("topic", "t"), topic_id=fields.pop("topic_id", ZERO_UUID), partitions=rows
                )
            ],
        }
        if member is not None:
            settings |= {
                "member_id": member.member_id,
                "generation_id": member.generation,
                "group_instance_id": member.instance,
            }
        return TxnOffsetCommitRequest(**{**settings, **fields})

    async def end(self, commit: bool = True) -> int:
        """Send EndTxn, and take over the epoch of the answer."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        response = await self.wire.call(request, END_VERSION[self.version])
        if response.error_code == ErrorCode.NONE and self.version == 2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return int(response.error_code)


async def stable_offsets(
    wire: Wire, *partitions: int, group: str = "g", topic: str = "t", require_stable: bool = True
) -> list[tuple[int, int]]:
    """(code, offset) of each partition by OffsetFetch v7 with require_stable."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))],
        require_stable=require_stable,
    )
    response = await wire.call(request, 7)
    assert response.error_code == 0
    return [(row.error_code, row.committed_offset) for row in response.topics[0].partitions]
