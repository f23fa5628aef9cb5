"""Markers under way: batches, endless retries, and the ends of retries. The destinations are made for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from broker.wire import EventLog
from semel_broker.scheduling.turns import Turns
from semel_broker.txn.markers.channel import Entry, Marker, MarkerChannel
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition
from semel_protocol.errors import ErrorCode, KafkaError

MARKER = Marker(ProducerIdentity(5, 3), commit=True, coordinator_epoch=7)
A0, A1, B0, HERE0 = ("a", 0), ("a", 1), ("b", 0), ("here", 0)
HERE = 2
LEADERS = {"a": 0, "b": 1, "here": HERE}


class ChannelSetup:
    """A channel to three brokers.

    Partition "a" is on broker 0, "b" on 1, and "here" on 2, the broker of the channel. Each write gets the next of
    `answers`, then OK.
    """

    def __init__(self) -> None:
        self.log = EventLog()
        self.leaderless: dict[TopicPartition, None] = {}
        self.deleted: dict[TopicPartition, None] = {}
        self.moved: dict[TopicPartition, int] = {}
        self.writes: list[tuple[int, list[TopicPartition]]] = []
        self.answers: list[ErrorCode | Exception] = []
        self.gate: asyncio.Event | None = None
        self.done: list[str] = []
        self.wanted = True
        self.is_behind = False
        turns = Turns(asyncio.get_running_loop(), lambda: 0.0)
        self.channel = MarkerChannel(
            self.log, self, HERE, DestinationBroker(self, HERE), lambda node: DestinationBroker(self, node), turns
        )

    def of(self, partition: TopicPartition) -> int | None:
        if partition in self.leaderless or partition in self.deleted:
            return None
        return self.moved.get(partition, LEADERS[partition[0]])

    def exists(self, partition: TopicPartition) -> bool:
        return partition not in self.deleted

    def send(self, *partitions: TopicPartition, name: str = "t") -> None:
        self.channel.send(name, MARKER, partitions, lambda: self.done.append(name), lambda: self.wanted)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)


class DestinationBroker:
    def __init__(self, room: ChannelSetup, node: int) -> None:
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
            if answer is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self.room.is_behind:
                self.room.deleted[entries[0][1]] = None
            codes[0] = answer
        return codes if self.room.gate is None else asyncio.create_task(self._later(self.room.gate, codes))

    async def _later(self, gate: asyncio.Event, codes: list[ErrorCode]) -> list[ErrorCode]:
        await gate.wait()
        return codes


@pytest.fixture
async def room() -> ChannelSetup:
    return ChannelSetup()


async def test_markers_of_one_loop_iteration_go_out_as_one_batch_per_destination(room: ChannelSetup) -> None:
    room.send(A0, B0, name="t1")
    room.send(A1, name="t2")
    assert (room.writes, room.done) == ([], [])
    await room.until(lambda: len(room.done) == 2)
    assert room.writes == [(0, [A0, A1]), (1, [B0])]


async def test_markers_for_this_broker_are_written_at_once(room: ChannelSetup) -> None:
    room.send(HERE0, A0, name="t1")
    room.send(HERE0, name="t2")
    assert (room.writes, room.done) == ([(HERE, [HERE0]), (HERE, [HERE0])], ["t2"])
    await room.until(lambda: len(room.done) == 2)
    assert room.writes[2:] == [(0, [A0])]


async def test_done_is_called_once_when_every_partition_has_its_marker(room: ChannelSetup) -> None:
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
async def test_a_marker_is_tried_until_it_is_written(room: ChannelSetup, trouble: ErrorCode | Exception) -> None:
    room.answers = [trouble] * 3
    room.send(A0)
    await room.until(lambda: room.done)
    assert room.writes == [(0, [A0])] * 4
    assert len(room.log.of("marker_delayed")) == 1, "said once, not at every attempt"


async def test_only_failed_markers_are_retried(room: ChannelSetup) -> None:
    room.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    room.send(A0, A1)
    await room.until(lambda: room.done)
    assert room.writes == [(0, [A0, A1]), (0, [A0])]


async def test_a_partition_without_leader_is_waited_for(room: ChannelSetup) -> None:
    room.leaderless[A0] = None
    room.send(A0, A1)
    await room.until(lambda: room.writes)
    assert (room.writes, room.done, room.channel.waiting) == ([(0, [A1])], [], 1)
    del room.leaderless[A0]
    await room.until(lambda: room.done)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_partition_that_needs_no_marker_holds_nothing_up(room: ChannelSetup, code: ErrorCode) -> None:
    room.answers = [code]
    room.send(A0, A1)
    await room.until(lambda: room.done)
    assert room.log.of("marker_not_needed")[0]["error"] == code.name


@pytest.mark.proves("deposed-coordinator-writes-markers")
async def test_zombie_coordinators_marker_is_not_tried_again(room: ChannelSetup) -> None:
    room.answers = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    room.send(A0)
    await room.until(lambda: room.log.of("coordinator_fenced"))
    assert (room.done, room.channel.waiting) == ([], 0), "its successor ends the transaction"


async def test_closing_waits_for_local_writes_and_retries_nothing(room: ChannelSetup) -> None:
    room.leaderless[B0] = None
    room.gate = asyncio.Event()
    room.send(B0, name="t1")
    room.send(HERE0, name="t2")
    await room.until(lambda: room.writes)
    closing = asyncio.create_task(room.channel.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    room.gate.set()
    await closing
    assert room.done == ["t2"]
    room.leaderless.clear()
    await asyncio.sleep(0.05)
    assert room.writes == [(HERE, [HERE0])]


async def test_closing_waits_for_no_other_broker(room: ChannelSetup) -> None:
    room.gate = asyncio.Event()
    room.send(A0)
    await room.until(lambda: room.writes)
    await room.channel.close()
    assert room.done == []


# --- several brokers ---


async def test_a_broker_has_one_request_under_way_and_the_next_takes_all_that_has_gathered(room: ChannelSetup) -> None:
    room.gate = asyncio.Event()
    room.send(A0, name="t1")
    await room.until(lambda: room.writes)
    for name in ("t2", "t3"):
        room.send(A0, A1, name=name)
        await asyncio.sleep(0.002)
    assert room.writes == [(0, [A0])]
    room.gate.set()
    await room.until(lambda: len(room.done) == 3)
    assert room.writes == [(0, [A0]), (0, [A0, A1, A0, A1])]


async def test_a_busy_broker_does_not_hold_up_another(room: ChannelSetup) -> None:
    room.gate = gate = asyncio.Event()
    room.send(A0, name="slow")
    await room.until(lambda: room.writes)
    room.gate = None
    room.send(B0, name="quick")
    await room.until(lambda: room.done)
    assert room.done == ["quick"]
    gate.set()
    await room.until(lambda: len(room.done) == 2)


@pytest.mark.proves("marker-for-a-former-leader")
async def test_a_partition_that_moves_while_its_marker_is_under_way_is_followed_at_once(room: ChannelSetup) -> None:
    """The last leader may be paused or dead. The channel does not wait for its answer, and ignores a late one."""
    room.gate = gate = asyncio.Event()
    room.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    room.send(A0, A1)
    await room.until(lambda: room.writes)
    room.gate = None
    room.moved[A0] = 1
    room.channel.leaders_changed()
    await room.until(lambda: len(room.writes) == 2)
    assert (room.writes, room.done) == ([(0, [A0, A1]), (1, [A0])], [])
    gate.set()
    await room.until(lambda: room.done)
    await asyncio.sleep(0.05)
    assert (room.writes[2:], room.channel.waiting) == ([], 0)


@pytest.mark.proves("marker-for-a-former-leader")
async def test_a_new_leader_gets_its_markers_at_once_without_backoff(room: ChannelSetup) -> None:
    room.leaderless[A0] = None
    room.send(A0)
    for _ in range(8):
        room.channel.leaders_changed()
        await asyncio.sleep(0.05)  # the backoff grows
    del room.leaderless[A0]
    room.channel.leaders_changed()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (room.writes, room.done) == ([(0, [A0])], ["t"])


async def test_queued_markers_go_to_the_leader_at_the_time_of_sending(room: ChannelSetup) -> None:
    room.gate = gate = asyncio.Event()
    room.send(A0, name="t1")
    await room.until(lambda: room.writes)
    room.send(A1, name="t2")
    await asyncio.sleep(0.002)
    room.gate = None
    room.moved[A1] = HERE
    room.channel.leaders_changed()
    await room.until(lambda: room.done)
    assert (room.writes, room.done) == ([(0, [A0]), (HERE, [A1])], ["t2"])
    gate.set()
    await room.until(lambda: len(room.done) == 2)
    assert len(room.writes) == 2


@pytest.mark.proves("marker-for-an-unknown-topic")
async def test_a_leader_that_does_not_know_a_topic_yet_gets_the_marker_again(room: ChannelSetup) -> None:
    room.answers = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    room.is_behind = True
    room.send(A0, A1)
    await room.until(lambda: room.done)
    assert room.writes == [(0, [A0, A1]), (0, [A0])]


async def test_a_topic_deleted_without_a_leader_does_not_delay_the_outcome(room: ChannelSetup) -> None:
    room.leaderless[A0] = None
    room.send(A0)
    room.deleted[A0] = None
    room.channel.leaders_changed()
    assert room.done == ["t"]


@pytest.mark.proves("marker-of-a-former-coordinator")
async def test_a_coordinator_that_lost_its_ids_tries_nothing_again(room: ChannelSetup) -> None:
    room.leaderless[A0] = None
    room.send(A0)
    assert room.channel.waiting == 1
    room.wanted = False
    room.leaderless.clear()
    await room.until(lambda: not room.channel.waiting)
    assert (room.writes, room.done) == ([], [])


async def test_a_bug_in_a_destination_costs_no_marker(room: ChannelSetup) -> None:
    async def fail() -> list[ErrorCode]:
        raise ZeroDivisionError

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    answers = [lambda: asyncio.create_task(fail())]
    write = DestinationBroker.write

    def once(self: DestinationBroker, entries: Sequence[Entry]) -> list[ErrorCode] | asyncio.Future[list[ErrorCode]]:
        return answers.pop()() if answers else write(self, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DestinationBroker, "write", once)
        room.send(A0)
        await room.until(lambda: room.done)
    assert isinstance(reported[0], ZeroDivisionError)
