"""Requests to another broker: pipelined, in order, with a timeout; and the connections when brokers start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import Image
from semel_broker.cluster.records import BrokerRecord
from semel_broker.cluster.store import RemovedKey, StoreEntry
from semel_broker.replication.peers import Peers
from semel_broker.world import World
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.headers import encode_response_frame, read_request_header
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from semel_storage.disk.memory_disk import MemoryDisk
from support.virtual_time import loop_time

API, VERSION = 23, 4
QUESTION = OffsetForLeaderEpochRequest(topics=[])


class ScriptedPeer:
    """The listener of another broker. `answers`: the bytes for each request (None: no answer)."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.requests: list[tuple[int, int]] = []  # (connection, correlation id)
        self.answer: Callable[[int], bytes | None] = good_answer
        self.server: asyncio.Server

    async def listen(self) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.connections)
        self.connections.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header = read_request_header(await reader.readexactly(size))
                self.requests.append((number, header.correlation_id))
                if (answer := self.answer(header.correlation_id)) is not None:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def close(self) -> None:
        self.server.close()
        for writer in self.connections:
            writer.transport.abort()


def good_answer(correlation_id: int) -> bytes:
    answer = OffsetForLeaderEpochResponse(throttle_time_ms=correlation_id)
    return b"".join(encode_response_frame(APIS[API], VERSION, correlation_id, answer))


class AskingBroker:
    """The asking broker: an image, and `Peers` over it."""

    def __init__(self) -> None:
        self.image = Image()
        self.feed = SimpleNamespace(image=self.image, listeners=[])
        world = World(now_ms=lambda: 0, monotonic=loop_time, rng=Random(1), disk=MemoryDisk())
        self.peers = Peers(world, cast("Feed", self.feed), cast("Any", SimpleNamespace(node_id=1)))
        self.revision = 0

    def register(self, node_id: int, port: int) -> None:
        self.revision += 1
        record = BrokerRecord(
            node_id=node_id,
            incarnation="",
            directory_id="",
            host="",
            port=0,
            peer_host="127.0.0.1",
            peer_port=port,
            is_synced=True,
        )
        self.tell(StoreEntry(f"brokers/{node_id}", msgspec.json.encode(record), self.revision))

    def tell(self, change: StoreEntry | RemovedKey) -> None:
        delta = self.image.apply([change], change.revision)
        for listener in self.feed.listeners:
            listener(delta)

    async def ask(self, timeout_ms: float = 5000) -> int:
        answer = await self.peers.call(2, API, VERSION, QUESTION, timeout_ms)
        number: int = answer.throttle_time_ms
        return number


@pytest.fixture
async def other() -> AsyncIterator[ScriptedPeer]:
    other = ScriptedPeer()
    yield other
    other.close()


@pytest.fixture
async def asker(other: ScriptedPeer) -> AsyncIterator[AskingBroker]:
    asker = AskingBroker()
    asker.register(2, await other.listen())
    yield asker
    await asker.peers.close()


async def unanswered(asker: AskingBroker, other: ScriptedPeer, count: int = 1) -> list[asyncio.Task[int]]:
    """Requests that the other broker has read and does not answer."""
    other.answer = lambda _: None
    asking = [asyncio.create_task(asker.ask()) for _ in range(count)]
    while len(other.requests) < count:
        await asyncio.sleep(0.001)
    return asking


async def test_requests_are_pipelined_on_one_connection(asker: AskingBroker, other: ScriptedPeer) -> None:
    assert await asyncio.gather(*(asker.ask() for _ in range(20))) == list(range(1, 21))
    assert len(other.connections) == 1


async def test_each_api_has_a_connection_of_its_own(asker: AskingBroker, other: ScriptedPeer) -> None:
    """No request waits behind a fetch that waits for data."""
    (waiting,) = await unanswered(asker, other)
    with pytest.raises(TimeoutError):
        await asker.peers.call(2, 27, 1, APIS[27].request(markers=[]), 20)
    assert [number for number, _ in other.requests] == [0, 1]
    assert not waiting.done()
    waiting.cancel()


async def test_answer_that_does_not_come_in_time_ends_the_connection(asker: AskingBroker, other: ScriptedPeer) -> None:
    other.answer = lambda _: None
    with pytest.raises(TimeoutError, match="did not answer OffsetForLeaderEpoch within 30 ms"):
        await asker.ask(30)
    other.answer = good_answer
    assert await asker.ask() == 1
    assert len(other.connections) == 2


@pytest.mark.parametrize(
    "garbage",
    [
        good_answer(77),
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02ab",
        good_answer(1)[:-1] + b"\xff",
        good_answer(1) + good_answer(2),
    ],
)
async def test_garbage_ends_the_connection_and_not_the_broker(
    asker: AskingBroker, other: ScriptedPeer, garbage: bytes
) -> None:
    other.answer = lambda _: garbage
    is_answered_first = garbage.startswith(good_answer(1))
    with nullcontext() if is_answered_first else pytest.raises(ConnectionAbortedError, match=r"broker 2 at 127.0.0.1"):
        assert await asker.ask() == 1
    await asyncio.sleep(0.01)
    other.answer = good_answer
    assert await asker.ask() == 1, "on a new connection"


async def test_waiting_requests_fail_when_the_connection_is_lost(asker: AskingBroker, other: ScriptedPeer) -> None:
    asking = await unanswered(asker, other, 3)
    other.connections[0].transport.abort()
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(error) for error in errors] == [ConnectionResetError] * 3
    other.answer = good_answer
    assert await asker.ask() == 1


@pytest.mark.proves("restarted-broker-in-sync")
async def test_a_restarted_broker_gets_a_new_connection(asker: AskingBroker, other: ScriptedPeer) -> None:
    """An answer of the former process must not count for the new one."""
    (asking,) = await unanswered(asker, other)
    successor = ScriptedPeer()
    asker.register(2, await successor.listen())
    with pytest.raises(ConnectionResetError, match="stopped or restarted"):
        await asking
    assert await asker.ask() == 1
    assert (len(other.connections), len(successor.connections)) == (1, 1)
    successor.close()


async def test_broker_that_is_not_registered_is_not_asked(asker: AskingBroker, other: ScriptedPeer) -> None:
    assert await asker.ask() == 1
    asker.tell(RemovedKey("brokers/2", 99))
    with pytest.raises(KafkaError) as refused:
        await asker.ask()
    assert refused.value.code == ErrorCode.REPLICA_NOT_AVAILABLE
    asker.revision = 100
    asker.register(2, other.server.sockets[0].getsockname()[1])
    assert await asker.ask() == 1


async def test_an_unreachable_broker_is_not_dialled_for_every_request(asker: AskingBroker, other: ScriptedPeer) -> None:
    port = other.server.sockets[0].getsockname()[1]
    other.close()
    await other.server.wait_closed()
    dialled = 0
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def count(*rest: Any, **named: Any) -> Any:
        nonlocal dialled
        dialled += 1
        return await connect(*rest, **named)

    loop.create_connection = count  # type: ignore[assignment]
    errors = await asyncio.gather(*(asker.ask() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(error, ConnectionRefusedError) for error in errors)
    assert f"broker 2 at 127.0.0.1:{port} cannot be reached" in str(errors[0])
    assert dialled == 1
    with pytest.raises(ConnectionRefusedError):
        await asker.ask()
    assert dialled == 1, "not before a pause"


async def test_a_cancelled_request_does_not_delay_others(asker: AskingBroker, other: ScriptedPeer) -> None:
    (asking,) = await unanswered(asker, other)
    asking.cancel()
    await asyncio.wait((asking,))
    other.answer = good_answer
    async with asyncio.timeout(5):
        assert await asker.ask() == 1
    assert len(other.connections) == 2


async def test_close_ends_everything(asker: AskingBroker, other: ScriptedPeer) -> None:
    (asking,) = await unanswered(asker, other)
    await asker.peers.close()
    with pytest.raises(ConnectionResetError, match="this broker is stopping"):
        await asking
    assert asker.feed.listeners == []
