"""Produces random batches, then reads them with every request that a client has for it."""

from __future__ import annotations

from random import Random

from broker.wire import Wire, produce_request
from fuzz.fuzzed_broker import WALL_MS, FuzzedBroker
from fuzz.record_batches import ProducerFields, any_batch
from semel_protocol.batch import BatchHeader, iterate
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.records import decode_batch
from support.virtual_loop import VirtualLoop

COMPACTED = "c"
TOPICS = ("t", COMPACTED, "stamped")
INFLATED_BYTES_MAX = 4 << 20
LOOKED_AT_MAX = 1_000
TIMES_MS = (-1, -2, -3, 0, WALL_MS, WALL_MS + 5_000, 2**62)
PRODUCE_VERSIONS = (3, 7, 9, 12)
TRANSACTIONAL_IDS = {True: "open", False: None}


def batches(random: Random, producers: list[ProducerFields], *, bombs: bool) -> list[tuple[ProduceRequest, int]]:
    """Valid Produce requests with random batches, with the version to send them in."""
    asks = []
    for _ in range(random.choice((1, 2, 4))):
        producer = random.choice(producers)
        data = any_batch(random, producer, bombs=bombs)
        request = produce_request(random.choice(TOPICS), data, acks=random.choice((-1, 1)))
        request.transactional_id = TRANSACTIONAL_IDS[producer.is_transactional]
        asks.append((request, random.choice(PRODUCE_VERSIONS)))
    return asks


def produce_and_look(target: FuzzedBroker, asks: list[tuple[ProduceRequest, int]]) -> int:
    """Return the number of accepted batches. Asserts the invariants of batches and broker."""

    async def run() -> int:
        wire = await Wire.connect(target.node.port)
        taken = 0
        for request, version in asks:
            response = await wire.call(request, version)
            taken += response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for topic in TOPICS:
            await _look(target.loop, wire, topic)
        await wire.close()
        return taken

    taken = target.run(run())
    target.check()
    return taken


async def _look(loop: VirtualLoop, wire: Wire, topic: str) -> None:
    for isolation_level in (0, 1):
        await _fetch_all(loop, wire, topic, isolation_level)
        for timestamp in TIMES_MS:
            row = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
            topics = [ListOffsetsRequestTopic(name=topic, partitions=[row])]
            await wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics))
    topics_asked = [DescribeProducersRequestTopic(name=topic, partition_indexes=[0])]
    await wire.call(DescribeProducersRequest(topics=topics_asked))


def _is_readable(header: BatchHeader, view: memoryview) -> bool:
    """Whether a consumer can decode the batch."""
    if header.record_count > LOOKED_AT_MAX:
        return True
    try:
        decode_batch(view, header, bytes_max=INFLATED_BYTES_MAX)
    except KafkaError:
        return False
    return True


async def _fetch_all(loop: VirtualLoop, wire: Wire, topic: str, isolation_level: int) -> None:
    """Read a partition and assert that batches follow each other without a gap. A batch may fail to decode."""
    is_compacted = topic == COMPACTED
    offset = 0
    while True:
        row = await wire.fetch(topic, offset, isolation_level=isolation_level, max_wait_ms=0)
        assert row.error_code == ErrorCode.NONE, row
        at = offset
        for header, view in iterate(row.records or b""):
            assert header.next_offset > offset, header
            assert is_compacted or header.base_offset <= at, (header, at)
            assert header.record_count > 0 or is_compacted, header
            at = header.next_offset
            with loop.uncounted():
                _is_readable(header, view)
        if at == offset:
            return
        offset = at
