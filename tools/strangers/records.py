"""EDGE: writes and reads topics with semel's client, so that a script can count a third-party program's records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from semel import Admin, Consumer, NewTopic, Producer
from semel.structs import TopicPartition

from tools.strangers import script

Values = dict[int, list[bytes]]
"""Values of records by partition, in offset order."""


def create(*topics: str, partitions: int) -> None:
    async def create() -> None:
        async with Admin(bootstrap_servers=script.bootstrap()) as admin:
            await admin.create_topics([NewTopic(name, partitions, script.replicas()) for name in topics])

    asyncio.run(create())


def send(topic: str, values: Iterable[tuple[bytes | None, bytes]], partitions: int, *, first: int = 0) -> None:
    """Send keys and values to a topic, round robin over its partitions; `first`: the number of the first record."""

    async def send() -> None:
        async with Producer(bootstrap_servers=script.bootstrap(), linger_ms=5) as producer:
            for number, (key, value) in enumerate(values, first):
                await producer.send(topic, value, key, partition=number % partitions)
            await producer.flush()

    asyncio.run(send())


class SlowProducer:
    """Sends keys and values to a topic in parts, so that kills happen while records arrive."""

    def __init__(self, topic: str, values: list[tuple[bytes | None, bytes]], partitions: int, *, parts: int) -> None:
        self._topic, self._values, self._partitions = topic, values, partitions
        self._step = -(-len(values) // parts)
        self._sent = 0

    def is_over(self) -> bool:
        """Send the next part; return True if none was left."""
        if self._sent == len(self._values):
            return True
        send(self._topic, self._values[self._sent : self._sent + self._step], self._partitions, first=self._sent)
        self._sent = min(len(self._values), self._sent + self._step)
        return False


def numbers(count: int) -> list[tuple[bytes | None, bytes]]:
    """Return records without a key: the numbers below `count`."""
    return [(None, str(number).encode()) for number in range(count)]


def read(topic: str, partitions: int) -> Values:
    """Return all committed records."""

    async def read() -> Values:
        found: Values = {partition: [] for partition in range(partitions)}
        async with Consumer(
            bootstrap_servers=script.bootstrap(), auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            places = [TopicPartition(topic, partition) for partition in range(partitions)]
            ends = await consumer.end_offsets(places)
            consumer.assign(places)
            while any([await consumer.position(place) < ends[place] for place in places]):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for record in records:
                        found[record.partition].append(record.value or b"")
        return found

    return asyncio.run(read())


def committed(group: str, topic: str) -> int:
    """Return the sum of the offsets that a group has committed in a topic."""

    async def committed() -> int:
        async with Admin(bootstrap_servers=script.bootstrap()) as admin:
            found = await admin.list_consumer_group_offsets(group)
        return sum(each.offset for place, each in found.items() if place.topic == topic)

    return asyncio.run(committed())


def flat(topic: str, partitions: int) -> list[bytes]:
    """Return all values, each partition in offset order."""
    return [value for values in read(topic, partitions).values() for value in values]


def require_once(values: Iterable[bytes], count: int) -> None:
    """Check that each number below `count` appears once. Raises AssertionError with the lost and duplicated ones."""
    found = [int(value) for value in values]
    lost, twice = count - len(set(found) & set(range(count))), len(found) - len(set(found))
    strange = len(set(found) - set(range(count)))
    message = f"of {count} records {lost} are lost, {twice} are duplicated, {strange} are unexpected"
    assert (lost, twice, strange) == (0, 0, 0), message


def require_ascending(values: Values) -> None:
    """Check that the numbers of each partition ascend. Raises AssertionError."""
    for partition, found in values.items():
        numbers = [int(value) for value in found]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
