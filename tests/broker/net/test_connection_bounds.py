"""One connection alone: back-pressure, the bounds on memory and time, and its end."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from broker.bench import Bench, heartbeat, until
from broker.wire import fetch_request, produce_request
from semel_broker.config.limits import Limits
from semel_broker.context import RequestContext
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from semel_protocol.messages.k01_fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FETCH, PRODUCE, HEARTBEAT, API_VERSIONS, INIT_PRODUCER_ID = 1, 0, 12, 18, 22


# --- bounds --------------------------------------------------------------------------------------------------


async def test_reading_pauses_while_too_many_requests_are_unanswered(bench: Bench) -> None:
    await bench.start(Limits(in_flight_requests_max=4))
    wire = await bench.wire()
    bench.hold("1")
    for _ in range(50):
        wire.send(produce_request("1", b"x" * 50_000))
    await until(lambda: len(bench.started) >= 4)
    await asyncio.sleep(0.05)
    assert len(bench.started) < 10, "the rest is not received"
    bench.let("1")
    for _ in range(50):
        assert (await wire.receive()).throttle_time_ms == 1
    assert len(bench.started) == 50
    await wire.close()


async def test_in_flight_bytes_are_released_in_every_case(bench: Bench) -> None:
    await bench.start(Limits(in_flight_bytes_max=100_000))
    assert bench.server is not None
    bench.hold("1")
    gone, stays, cut = await bench.wire(), await bench.wire(), await bench.wire()
    for wire in (gone, stays):
        wire.send(produce_request("1", b"x" * 200_000))
    cut.send_bytes((300_000).to_bytes(4, "big") + bytes(1000))
    await until(lambda: bench.server is not None and bench.server.context.memory.taken > 400_000)
    await gone.close()
    await cut.close()
    bench.let("1")
    await stays.receive()
    await stays.close()
    await until(lambda: bench.server is not None and bench.server.connection_count == 0)
    assert bench.server.context.memory.taken == 0


async def test_large_frames_share_a_memory_bound_and_all_are_served(bench: Bench) -> None:
    await bench.start(Limits(total_in_flight_bytes_max=4_000_000))
    assert bench.server is not None
    seen: list[int] = []

    async def produce(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse:
        assert bench.server is not None
        seen.append(bench.server.context.memory.taken)
        return ProduceResponse()

    bench.handlers[PRODUCE] = produce
    wires = [await bench.wire() for _ in range(8)]
    for wire in wires:
        wire.send(produce_request("1", b"x" * 1_000_000))
    for wire in wires:
        assert isinstance(await wire.receive(), ProduceResponse)
    assert len(seen) == 8
    assert max(seen) <= 4_000_000 + 1_000_000, "the bound plus the favoured frame"
    for wire in wires:
        await wire.close()


async def test_a_frame_above_the_total_bound_is_served_alone(bench: Bench) -> None:
    await bench.start(Limits(total_in_flight_bytes_max=1000))
    wire = await bench.wire()
    assert isinstance(await wire.call(produce_request("1", b"x" * 500_000)), ProduceResponse)
    await wire.close()


def big_fetch(bench: Bench, size: int) -> None:
    chunk = bytes(size)

    async def fetch(request: Any, ctx: RequestContext) -> FetchResponse:
        bench.started.append("fetch")
        rows = [FetchResponsePartition(records=chunk)]
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=rows)])

    bench.handlers[FETCH] = fetch


@pytest.mark.proves("client-that-never-reads")
async def test_a_client_that_never_reads_is_not_read_either(bench: Bench) -> None:
    big_fetch(bench, 4 << 20)
    await bench.start()
    wire = await bench.wire()
    wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(60):
        wire.send(fetch_request("t", 0))
    await until(lambda: len(bench.started) >= 1)
    await asyncio.sleep(0.1)
    started = len(bench.started)
    assert started <= 4, "240 MiB were requested; only as many answers were made as the socket accepted"
    wire.reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(60):
        await wire.receive()
    await wire.close()


@pytest.mark.proves("client-that-never-reads")
async def test_with_full_answer_memory_fetches_wait_and_unread_connections_are_closed() -> None:
    bench = Bench()
    big_fetch(bench, 8 << 20)
    await bench.start(Limits(total_write_buffer_bytes_max=1000, stalled_reader_timeout_ms=200))
    stalled, reads = await bench.wire(), await bench.wire()
    stalled.reader._transport.pause_reading()  # type: ignore[attr-defined]
    stalled.send(fetch_request("t", 0))
    await until(lambda: bench.server is not None and bench.server.context.answers.is_exhausted)
    reads.send(fetch_request("t", 0))
    await asyncio.sleep(0.05)
    assert bench.started == ["fetch"]
    assert (await reads.receive()).responses[0].topic == "t"
    assert bench.reasons() == ["does_not_read"]
    await bench.stop()


async def test_idle_connections_are_closed_unless_a_request_is_unanswered() -> None:
    bench = Bench()
    await bench.start(connections_max_idle_ms="150")
    idle, waiting = await bench.wire(), await bench.wire()
    bench.hold("g")
    waiting.send(heartbeat("g"))
    assert await idle.closed_by_peer()
    await asyncio.sleep(0.2)
    bench.let("g")
    assert (await waiting.receive()).error_code == 0
    assert bench.reasons() == ["idle"]
    await bench.stop()


@pytest.mark.proves("slow-frames")
async def test_a_frame_that_arrives_too_slowly_closes_its_connection(bench: Bench) -> None:
    await bench.start(Limits(partial_frame_timeout_ms=150))
    wire = await bench.wire()
    async with asyncio.timeout(10):
        while not bench.reasons():
            wire.send_bytes(b"\x00" if wire.writer.transport.get_write_buffer_size() else (1000).to_bytes(4, "big"))
            await asyncio.sleep(0.02)
            if wire.reader.at_eof():
                break
            wire.send_bytes(b"\x00")
    assert bench.reasons()[0] in ("partial_frame_timeout",)
    await wire.close()


async def test_a_partial_frame_does_not_time_out_while_reading_is_paused(bench: Bench) -> None:
    await bench.start(Limits(partial_frame_timeout_ms=150, in_flight_requests_max=1))
    wire = await bench.wire()
    bench.hold("1")
    wire.send(produce_request("1", None))
    wire.send_bytes((1000).to_bytes(4, "big") + bytes(10))  # one segment with the request that holds up reading
    await asyncio.sleep(0.4)
    bench.let("1")
    assert (await wire.receive()).throttle_time_ms == 1
    await asyncio.sleep(0.05)
    assert bench.reasons() == []
    await wire.closed_by_peer()
    assert bench.reasons() == ["partial_frame_timeout"]
    await wire.close()


@pytest.mark.proves("unauthenticated-clients")
async def test_connections_beyond_the_maximum_are_closed(bench: Bench) -> None:
    await bench.start(max_connections="2")
    first, second = await bench.wire(), await bench.wire()
    await first.call(heartbeat("g"))
    await second.call(heartbeat("g"))
    third = await bench.wire()
    assert await third.closed_by_peer()
    assert bench.reasons() == ["too_many_connections"]
    for wire in (first, second, third):
        await wire.close()


# --- the end -------------------------------------------------------------------------------------------------


async def test_requests_of_a_lost_peer_continue_except_fetches(bench: Bench) -> None:
    finished: list[str] = []

    async def init(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
        await asyncio.sleep(0.1)
        finished.append("persisted and applied")
        return InitProducerIdResponse()

    async def fetch(request: Any, ctx: RequestContext) -> FetchResponse:
        try:
            await asyncio.sleep(60)
        finally:
            finished.append("fetch ended")
        return FetchResponse()

    bench.handlers |= {INIT_PRODUCER_ID: init, FETCH: fetch}
    await bench.start()
    for request in (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), fetch_request("t", 0)):
        wire = await bench.wire()
        wire.send(cast("msgspec.Struct", request))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        await wire.close()
    await until(lambda: len(finished) == 2)
    assert finished == ["fetch ended", "persisted and applied"]


async def test_stopping_answers_requests_in_progress(bench: Bench) -> None:
    await bench.start()
    assert bench.server is not None
    wire = await bench.wire()
    bench.hold("1")
    wire.send(produce_request("1", None))
    await until(lambda: bench.started == ["1"])
    stopping = asyncio.create_task(bench.server.stop(5))
    await asyncio.sleep(0.02)
    with pytest.raises(ConnectionRefusedError):
        await bench.wire()
    bench.let("1")
    assert (await wire.receive()).throttle_time_ms == 1
    assert await wire.closed_by_peer()
    await stopping
    await wire.close()


async def test_stopping_does_not_wait_for_long_polls(bench: Bench) -> None:
    async def fetch(request: Any, ctx: RequestContext) -> FetchResponse:
        await asyncio.sleep(60)
        return FetchResponse()

    bench.handlers[FETCH] = fetch
    await bench.start()
    assert bench.server is not None
    wire = await bench.wire()
    wire.send(fetch_request("t", 0))
    await asyncio.sleep(0.02)
    async with asyncio.timeout(2):
        await bench.server.stop(60)
    await wire.close()
