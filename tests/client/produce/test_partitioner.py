"""The partition of a record: murmur2 of the key as in Kafka, one partition at a time without a key, or the caller's
choice.
"""

from __future__ import annotations

import pytest
from client.fake_broker import FakeBroker
from semel import Producer
from semel._produce.partitioner import key_hash


@pytest.mark.parametrize(
    ("key", "partition"),
    [("", 9), ("21", 0), ("foobar", 6), ("a-little-bit-long-string", 8), ("abc", 3), ("é", 3)],
)
def test_keys_go_where_kafkas_partitioner_puts_them(key: str, partition: int) -> None:
    assert key_hash(key.encode()) % 12 == partition


async def test_a_key_decides_the_partition() -> None:
    async with FakeBroker({"t": 12}) as broker, Producer(bootstrap_servers=broker.address) as producer:
        assert (await producer.send_and_wait("t", b"", key=b"foobar")).partition == 6
        assert (await producer.send_and_wait("t", b"", key=b"foobar", partition=2)).partition == 2


async def test_a_partitioner_of_the_application_is_called_for_every_record() -> None:
    asked: list[tuple[bytes | None, list[int], list[int]]] = []

    def choose(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        asked.append((key, all_partitions, available))
        return 2

    async with (
        FakeBroker({"t": 3}) as broker,
        Producer(bootstrap_servers=broker.address, partitioner=choose) as sender,
    ):
        rows = [await sender.send_and_wait("t", b"v", key=key) for key in (None, b"k")]
    assert [row.partition for row in rows] == [2, 2]
    assert asked == [(None, [0, 1, 2], [0, 1, 2]), (b"k", [0, 1, 2], [0, 1, 2])]


async def test_added_partitions_are_used_once_metadata_tells() -> None:
    async with FakeBroker({"t": 1}) as broker, Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait("t", b"")
        broker.topics["t"] = 12
        await producer._cluster.refresh()
        assert (await producer.send_and_wait("t", b"", key=b"foobar")).partition == 6
