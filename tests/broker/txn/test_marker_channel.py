"""Markers on their way: batches, retries for ever, what ends the attempts; destinations made for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from broker.wire import EventLog
from semel_broker.txn.identity import ProducerIdentity
from semel_broker.txn.marker_channel import Entry, Marker, MarkerChannel
from semel_broker.txn.metadata import TopicPartition
from semel_protocol.errors import ErrorCode, KafkaError

MARKER = Marker(ProducerIdentity(5, 3), commit=True, coordinator_epoch=7)
A0, A1, B0, HERE0 = ("a", 0), ("a", 1), ("b", 0), ("here", 0)
HERE = 2
LEADERS = {"a": 0, "b": 1, "here": HERE}


class Room:
    """A channel to three brokers: "a" lies on 0, "b" on 1, "here" on 2, where the channel is.

    Each write is answered by the next of `answers`, then OK.
    """

    def __init__(self) -> None:
        self.log = EventLog()
        self.leaderless: dict[TopicPartition, None] = {}
        self.writes: list[tuple[int, list[TopicPartition]]] = []
        self.answers: list[ErrorCode | Exception] = []
        self.gate: asyncio.Event | None = None
        self.done: list[str] = []
        self.channel = MarkerChannel(self.log, self._locate, lambda node: Broker(self, node))

    def _locate(self, partition: TopicPartition) -> int | None:
        return None if partition in self.leaderless else LEADERS[partition[0]]

    def send(self, *partitions: TopicPartition, name: str = "t") -> None:
        self.channel.send(name, MARKER, partitions, lambda: self.done.append(name))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)


class Broker:
    def __init__(self, room: Room, node: int) -> None:
        self.room, self.node = room, node
        self.is_here = node == HERE

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode] | asyncio.Future[list[ErrorCode]]:
        assert all(marker is MARKER for marker, _ in entries)
        self.room.writes.append((self.node, [to for _, to in entries]))
        codes = [ErrorCode.NONE] * len(entries)
        if self.room.answers:
            answer = self.room.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            codes[0] = answer
        return codes if self.room.gate is None else asyncio.create_task(self._later(self.room.gate, codes))

    async def _later(self, gate: asyncio.Event, codes: list[ErrorCode]) -> list[ErrorCode]:
        await gate.wait()
        return codes


@pytest.fixture
async def room() -> Room:
    return Room()


async def test_what_one_turn_queues_goes_out_as_one_batch_per_destination(room: Room) -> None:
    room.send(A0, B0, name="t1")
    room.send(A1, name="t2")
    assert (room.writes, room.done) == ([], [])
    await room.until(lambda: len(room.done) == 2)
    assert room.writes == [(0, [A0, A1]), (1, [B0])]


async def test_what_is_for_this_broker_is_written_at_once(room: Room) -> None:
    room.send(HERE0, A0, name="t1")
    room.send(HERE0, name="t2")
    assert (room.writes, room.done) == ([(HERE, [HERE0]), (HERE, [HERE0])], ["t2"])
    await room.until(lambda: len(room.done) == 2)
    assert room.writes[2:] == [(0, [A0])]


async def test_done_is_told_once_when_every_partition_has_its_marker(room: Room) -> None:
    room.gate = asyncio.Event()
    room.send(A0, B0)
    await room.until(lambda: len(room.writes) == 2)
    assert room.done == []
    room.gate.set()
    await room.until(lambda: room.done)
    assert room.done == ["t"]


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        OSError("connection refused"),
        KafkaError(ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_a_marker_is_tried_until_it_is_written(room: Room, trouble: ErrorCode | Exception) -> None:
    room.answers = [trouble] * 3
    room.send(A0)
    await room.until(lambda: room.done)
    assert room.writes == [(0, [A0])] * 4
    assert len(room.log.of("marker_delayed")) == 1, "said once, not at every attempt"


async def test_only_what_failed_is_tried_again(room: Room) -> None:
    room.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    room.send(A0, A1)
    await room.until(lambda: room.done)
    assert room.writes == [(0, [A0, A1]), (0, [A0])]


async def test_a_partition_without_leader_is_waited_for(room: Room) -> None:
    room.leaderless[A0] = None
    room.send(A0, A1)
    await room.until(lambda: room.writes)
    assert (room.writes, room.done, room.channel.waiting) == ([(0, [A1])], [], 1)
    del room.leaderless[A0]
    await room.until(lambda: room.done)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_partition_that_needs_no_marker_holds_nothing_up(room: Room, code: ErrorCode) -> None:
    room.answers = [code]
    room.send(A0, A1)
    await room.until(lambda: room.done)
    assert room.log.of("marker_not_needed")[0]["error"] == code.name


async def test_zombie_coordinators_marker_is_not_tried_again(room: Room) -> None:
    room.answers = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    room.send(A0)
    await room.until(lambda: room.log.of("coordinator_fenced"))
    assert (room.done, room.channel.waiting) == ([], 0), "its successor ends the transaction"


async def test_closing_waits_for_what_is_being_written_and_tries_nothing_again(room: Room) -> None:
    room.leaderless[B0] = None
    room.gate = asyncio.Event()
    room.send(B0, name="t1")
    room.send(A0, name="t2")
    await room.until(lambda: room.writes)
    closing = asyncio.create_task(room.channel.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    room.gate.set()
    await closing
    assert room.done == ["t2"]
    room.leaderless.clear()
    await asyncio.sleep(0.05)
    assert room.writes == [(0, [A0])]
