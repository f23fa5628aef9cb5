"""Fairness: no connection can block the others by requests, by unread answers or by unfinished frames.

All tests run in virtual time. They check the order of events, and the work in one turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.bench import Bench, heartbeat
from broker.wire import fetch_request, produce_request
from semel_broker.config.limits import Limits
from semel_broker.context import RequestContext
from semel_protocol.messages.k00_produce import ProduceResponse
from semel_protocol.messages.k01_fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel_protocol.messages.k12_heartbeat import HeartbeatResponse
from support.virtual_loop import Transport, VirtualLoop

MIB = 1 << 20
FETCH, PRODUCE = 1, 0


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until the condition holds; time advances only when the loop is idle."""
    async with asyncio.timeout(60):
        while not condition():
            for _ in range(100):
                await asyncio.sleep(0)
                if condition():
                    return
            await asyncio.sleep(0.001)


def virtual_loop() -> VirtualLoop:
    return cast("VirtualLoop", asyncio.get_running_loop())


def kept_bytes(bench: Bench) -> int:
    """The bytes of answers in the transports of the broker's connections."""
    assert bench.server is not None
    return sum(cast("Transport", each._transport).kept_bytes() for each in bench.server._connections)


def announced(size: int, sent: int = 0) -> bytes:
    """The first bytes of a Produce frame of `size` bytes."""
    return size.to_bytes(4, "big") + b"\0\0\0\7" + bytes(sent)


def fetches_of(bench: Bench, size: int) -> list[str]:
    """The client ids of Fetches in the order of their start; each is answered with `size` bytes, or its limit."""
    started: list[str] = []

    async def fetch(request: Any, ctx: RequestContext) -> FetchResponse:
        started.append(ctx.client_id)
        rows = [FetchResponsePartition(records=bytes(min(size, ctx.answer_bytes_max)))]
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=rows)])

    bench.handlers[FETCH] = fetch
    return started


# --- turns ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("one-client-blocks-others")
async def test_a_pipelining_connection_lets_others_take_turns() -> None:
    bench = Bench()
    await bench.start()
    crowd = [await bench.wire() for _ in range(3)]
    bystander = await bench.wire()
    for wire in crowd:
        for _ in range(5_000):
            wire.send(heartbeat("crowd"))
    await until(lambda: len(bench.started) > 100)
    sent_at = len(bench.started)
    bystander.send(heartbeat("bystander"))
    await until(lambda: "bystander" in bench.started)
    before = bench.started.index("bystander") - sent_at
    assert before < 200, f"{before} requests of others were started in between"
    assert len(bench.started) < 10_000, "the other requests must still be waiting, or the test shows nothing"
    await bench.stop()


async def test_all_pipelining_connections_get_turns() -> None:
    bench = Bench()
    await bench.start(Limits(turn_requests_max=4))
    crowd = [await bench.wire() for _ in range(3)]
    for name, wire in enumerate(crowd):
        for _ in range(100):
            wire.send(heartbeat(f"{name}"))
    await until(lambda: len(bench.started) == 300)
    for name in "012":
        first_half = bench.started[:150].count(name)
        assert 40 <= first_half <= 60, bench.started
    await bench.stop()


async def test_no_request_is_started_after_its_peer_has_gone() -> None:
    bench = Bench()
    started = fetches_of(bench, 4 * MIB)
    await bench.start()
    wires = [await bench.wire() for _ in range(12)]
    for wire in wires:
        wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(100):
            wire.send(fetch_request("t", 0))
    await until(lambda: len(started) >= 12)
    await asyncio.sleep(1)
    begun = len(started)
    assert begun < 50
    for wire in wires:
        wire.writer.transport.abort()
    await until(lambda: bench.server is not None and bench.server.connection_count == 0)
    assert len(started) == begun
    await bench.stop()


# --- memory of requests --------------------------------------------------------------------------------------


async def test_a_size_prefix_alone_takes_no_memory() -> None:
    bench = Bench()
    await bench.start()
    assert bench.server is not None
    wires = [await bench.wire() for _ in range(40)]
    for wire in wires:
        wire.send_bytes(announced(100 * MIB, 10))
    await asyncio.sleep(0.1)
    assert bench.server.connection_count == 40, bench.reasons()
    assert bench.server.context.memory.taken < 40 * 64 * 1024 + 1000
    await bench.stop()


async def test_stalled_large_frames_do_not_block_others() -> None:
    bench = Bench()
    await bench.start(Limits(total_in_flight_bytes_max=16 * MIB))
    assert bench.server is not None
    stuck = [await bench.wire() for _ in range(6)]
    for wire in stuck:
        wire.send_bytes(announced(8 * MIB, 3 * MIB))
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    small, large = await bench.wire(), await bench.wire()
    small.send(produce_request("1", bytes(300_000)))
    large.send(produce_request("2", bytes(6 * MIB)))
    assert (await small.receive()).throttle_time_ms == 1
    assert loop.time() - began < 0.1, "a small frame does not wait for a large one"
    assert (await large.receive()).throttle_time_ms == 2
    assert loop.time() - began < 10, "stalled connections lose their memory"
    assert bench.server.context.memory.taken < 16 * MIB
    assert "memory_reclaimed" in bench.reasons()
    await bench.stop()


async def test_many_stalled_small_frames_block_others_only_briefly() -> None:
    bench = Bench()
    await bench.start(Limits(total_in_flight_bytes_max=16 * MIB))
    assert bench.server is not None
    wires = [await bench.wire() for _ in range(40)]
    for wire in wires:
        wire.send_bytes(announced(MIB, MIB - 1000))
    await asyncio.sleep(0.1)
    assert bench.server.context.memory.taken <= 17 * MIB
    loop = asyncio.get_running_loop()
    began = loop.time()
    wire = await bench.wire()
    wire.send(produce_request("1", bytes(300_000)))
    assert (await wire.receive()).throttle_time_ms == 1
    assert loop.time() - began < 5
    await bench.stop()


async def test_queued_requests_block_other_connections_only_briefly() -> None:
    bench = Bench()
    await bench.start(Limits(total_in_flight_bytes_max=16 * MIB))
    bench.hold("g")
    wires = [await bench.wire() for _ in range(20)]
    for wire in wires:
        wire.send(heartbeat("g"))
        for _ in range(20):
            wire.send(produce_request("9", bytes(100_000)))
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for size in (100, 300_000):
        wire = await bench.wire()
        assert (await wire.call(produce_request("1", bytes(size)))).throttle_time_ms == 1
    assert loop.time() - began < 5
    await bench.stop()


# --- memory of answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "wait_s"), [(12, 0.1), (100, 1.0)])
async def test_unread_answers_leave_memory_for_other_connections(count: int, wait_s: float) -> None:
    bench = Bench()
    started = fetches_of(bench, 54 * MIB)
    await bench.start(Limits(total_write_buffer_bytes_max=64 * MIB))
    assert bench.server is not None
    wires = [await bench.wire() for _ in range(count)]
    for wire in wires:
        wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(10):
            wire.send(fetch_request("t", 0))
    await until(lambda: len(started) >= min(count, 70))
    bystander = await bench.wire()
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await bystander.call(fetch_request("t", 0))
    assert len(answer.responses[0].partitions[0].records) >= 64 * 1024
    assert loop.time() - began < wait_s
    assert kept_bytes(bench) == bench.server.context.answers.taken < 66 * MIB
    await bench.stop()


async def test_partly_sent_answers_count_in_full() -> None:
    """A transport keeps a whole buffer until the kernel has accepted its last byte."""
    virtual_loop().kernel_bytes = 3 * MIB
    bench = Bench()
    started = fetches_of(bench, 4 * MIB)
    await bench.start(
        Limits(total_write_buffer_bytes_max=64 * MIB, answer_part_of_free=4, stalled_reader_timeout_ms=60_000)
    )
    assert bench.server is not None
    for _ in range(100):
        wire = await bench.wire()
        wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(10):
            wire.send(fetch_request("t", 0))
    await asyncio.sleep(1)
    assert len(started) > 16
    assert kept_bytes(bench) < 68 * MIB
    assert bench.server.context.answers.taken == kept_bytes(bench)
    await bench.stop()


async def test_answers_waiting_behind_an_unfinished_one_count() -> None:
    bench = Bench()
    started = fetches_of(bench, MIB)
    await bench.start(Limits(total_write_buffer_bytes_max=16 * MIB, answer_part_of_free=1))
    assert bench.server is not None
    bench.hold("1")
    wire, other = await bench.wire(), await bench.wire()
    wire.send(produce_request("1", b"x"))
    for _ in range(100):
        wire.send(fetch_request("t", 0))
    await asyncio.sleep(0.1)
    assert len(started) == 16, "16 MiB, and some bytes around each"
    await other.call(fetch_request("t", 0))
    assert bench.reasons() == ["does_not_read"], "others wait, and its answers make no progress"
    bench.let("1")
    await until(lambda: bench.server is not None and not bench.server.context.tasks)
    assert bench.server.context.answers.taken == 0
    await bench.stop()


async def test_a_slowly_reading_peer_is_not_closed() -> None:
    """The kernel frees its buffer in large steps; the bytes that the peer has acknowledged count as progress."""
    left = {"bytes": 10 * MIB}
    bench = Bench()
    fetches_of(bench, 8 * MIB)
    await bench.start(Limits(total_write_buffer_bytes_max=MIB, answer_bytes_min=8 * MIB))
    assert bench.server is not None
    context = bench.server.context
    slow, waits = await bench.wire(), await bench.wire()
    slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
    context.unacknowledged = lambda descriptor: left["bytes"]
    for connection in bench.server._connections:
        cast("Any", connection._transport)._extra["socket"] = SimpleNamespace(fileno=lambda: 3)
    slow.send(fetch_request("t", 0))
    await until(lambda: context.answers.is_exhausted)
    waits.send(fetch_request("t", 0))
    for _ in range(20):
        await asyncio.sleep(0.1)
        left["bytes"] -= 20_000
    assert bench.reasons() == []
    await until(lambda: bench.reasons() == ["does_not_read"])
    assert await waits.receive()
    await bench.stop()


async def test_a_large_answer_ends_the_turn_of_its_connection() -> None:
    bench = Bench()
    started = fetches_of(bench, 2 * MIB)
    virtual_loop().kernel_bytes = 1 << 30
    await bench.start()
    greedy, other = await bench.wire(), await bench.wire()
    for _ in range(4):
        greedy.send(fetch_request("t", 0), client_id="greedy")
    other.send(fetch_request("t", 0), client_id="other")
    await until(lambda: len(started) == 5)
    assert started.index("other") <= 2
    await bench.stop()


async def test_answers_for_closed_connections_are_dropped() -> None:
    """A Produce of a gone peer finishes, and the connection releases all memory."""
    bench = Bench()
    await bench.start()
    assert bench.server is not None
    bench.hold("1")
    gone = await bench.wire()
    gone.send(produce_request("1", bytes(1000)))
    gone.send(heartbeat("g"))
    await until(lambda: "1" in bench.started)
    gone.writer.transport.abort()
    await until(lambda: bench.server is not None and bench.server.connection_count == 0)
    bench.let("1")
    await until(lambda: bench.server is not None and not bench.server.context.tasks)
    assert bench.server.context.memory.taken == 0
    other = await bench.wire()
    assert isinstance(await other.call(heartbeat("g")), HeartbeatResponse)
    assert isinstance(await other.call(produce_request("2", b"x")), ProduceResponse)
    await bench.stop()
