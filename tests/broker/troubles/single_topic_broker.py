"""A broker in memory with its users: producers, readers, the `semel` command, a dump of a partition.

The broker has an event loop of its own. It can be killed, and blocking clients can be stopped, while others continue.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from click.testing import CliRunner
from semel import Consumer, Producer, TopicPartition
from semel.cli.main import main
from semel.errors import KafkaTimeoutError
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker
from semel_broker.txn.markers.channel import Entry
from semel_protocol.errors import ErrorCode

PATIENCE_S = 20
TOPIC = "T-TEST"


class DumpedRow(NamedTuple):
    """One record or marker of a `semel log dump`."""

    offset: int
    epoch: int
    producer_id: int
    what: str


class UnreachableDestination:
    """A destination of markers with one partition without leader. For durability=os: markers are durable at once."""

    is_here = True

    def __init__(self, destination: Any, partition: tuple[str, int]) -> None:
        self.destination, self.partition = destination, partition

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode]:
        return [self._write(entry) for entry in entries]

    def _write(self, entry: Entry) -> ErrorCode:
        if entry[1] == self.partition:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        (code,) = self.destination.write([entry])
        assert isinstance(code, ErrorCode)
        return code


class SingleTopicBroker:
    """A broker with one topic of one partition. `settings` under Kafka's names, over those of the pytest plugin."""

    def __init__(self, **settings: object) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.broker = EphemeralBroker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20, **given})
        self.broker.start()
        self.broker.create_topic(TOPIC)

    @property
    def at(self) -> str:
        return self.broker.bootstrap_servers

    # Clients

    def producer(self, transactional_id: str | None = "TEST-TID-0", **settings: Any) -> Producer:
        """semel's own; not started."""
        return Producer(bootstrap_servers=self.at, transactional_id=transactional_id, **settings)

    def librdkafka(self, transactional_id: str | None = "TEST-TID-0", **settings: Any) -> confluent_kafka.Producer:
        """confluent-kafka's; not initialised."""
        named = {} if transactional_id is None else {"transactional.id": transactional_id}
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return confluent_kafka.Producer(
            {"bootstrap.servers": self.at, "linger.ms": 0, "log_level": 0, **named, **given}
        )

    def reader(self, isolation: Any = "read_committed", **settings: Any) -> Consumer:
        return Consumer(bootstrap_servers=self.at, isolation_level=isolation, auto_offset_reset="earliest", **settings)

    async def read(
        self, count: int, isolation: Any = "read_committed", topic: str = TOPIC
    ) -> list[tuple[int, bytes | None]]:
        """(offset, value) of the first `count` records for a reader from offset 0, and of records directly behind."""
        async with self.reader(isolation) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found = []
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < count:
                    found.append(await consumer.getone())
            rest = await consumer.getmany(timeout_ms=50)
            return [(record.offset, record.value) for record in (*found, *rest.get(partition, []))]

    async def values(self, count: int, isolation: Any = "read_committed", topic: str = TOPIC) -> list[bytes | None]:
        return [value for _, value in await self.read(count, isolation, topic)]

    async def read_nothing(self) -> bool:
        """Whether no record is committed, and no open transaction blocks later ones."""
        async with self.reader() as consumer:
            partition = TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            found = await consumer.getmany(timeout_ms=50)
            async with self.reader("read_uncommitted") as every:
                return not found and end == (await every.end_offsets([partition]))[partition]

    # Tools

    async def semel(self, *arguments: str, status: int = 0) -> str:
        """The output of the command."""
        environment = {"SEMEL_BOOTSTRAP_SERVER": self.at}
        done = await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment)
        assert done.exit_code == status, (done.output, done.exception)
        return " ".join(done.output.split())

    async def wait_for(self, words: str, *arguments: str) -> str:
        """The output of the command, repeated until it contains `words`."""
        until = time.monotonic() + PATIENCE_S
        while words not in (out := await self.semel(*arguments)):
            assert time.monotonic() < until, out
            await asyncio.sleep(0.02)
        return out

    async def dump(self, directory: Path, partition: str = f"{TOPIC}-0") -> list[DumpedRow]:
        """Stop the broker and dump its partition."""
        await self.stop()
        place = self.broker.save(directory / uuid.uuid4().hex) / partition
        done = await asyncio.to_thread(CliRunner().invoke, main, ["log", "dump", str(place)])
        assert done.exit_code == 0, done.output
        return [_dumped(line) for line in done.output.splitlines() if line.startswith("| offset")]

    # Faults

    async def stop(self) -> None:
        await asyncio.to_thread(self.broker.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self.broker.kill)
        for _ in range(3):  # the ends of the connections are there: the loop hands them to the clients now
            await asyncio.sleep(0)

    async def start(self) -> None:
        await asyncio.to_thread(self.broker.start)

    async def cut_power(self, seed: int = 1) -> None:
        """Cut the power: an arbitrary part of the unsynced bytes is lost."""
        await self.kill()
        self.broker._disk.crash(Random(seed))

    async def inside(self, look: Callable[[Node], Any]) -> Any:
        """Run `look(node)` in the broker's event loop."""

        async def run(node: Node) -> Any:
            return look(node)

        return await asyncio.to_thread(self.broker.call, run)

    async def stall_disk(self) -> None:
        """Block all syncs until `release_disk`."""
        await self.inside(lambda _: self.broker._disk.hold_syncs())

    async def release_disk(self) -> None:
        await self.inside(lambda _: self.broker._disk.release_syncs())

    async def lose_leader(self, topic: str, index: int = 0) -> None:
        """Keep markers from this partition until `find_leader`."""

        def look(node: Node) -> None:
            transactions: Any = node.broker.transactions
            transactions.markers.here = UnreachableDestination(transactions.markers.here, (topic, index))

        await self.inside(look)

    async def find_leader(self) -> None:
        def look(node: Node) -> None:
            transactions: Any = node.broker.transactions
            transactions.markers.here = transactions.markers.here.destination

        await self.inside(look)


async def heard_out(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat `call` until it does not time out. Returns the final outcome of a commit or abort."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await call()
            except KafkaTimeoutError:
                continue


@contextmanager
def refused(kind: type[BaseException], *words: str) -> Iterator[None]:
    """Check that the block raises `kind` with all of `words` in its message."""
    with pytest.raises(kind) as raised:
        yield
    missing = [each for each in words if each not in str(raised.value)]
    assert not missing, f"{missing} not in: {raised.value}"


def _dumped(line: str) -> DumpedRow:
    words = line[2:].split()
    facts = dict(zip(words[::2], words[1::2], strict=False))
    what = line.partition(" payload: ")[2] or facts["endTxnMarker:"]
    return DumpedRow(int(facts["offset:"]), int(facts["producerEpoch:"]), int(facts["producerId:"]), what)
