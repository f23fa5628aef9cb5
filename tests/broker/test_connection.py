"""The connection on its own: order, pipelining, back-pressure, bounds, bad input; over handlers made for the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from broker.wire import EventLog, Wire, fetch_request, produce_request
from semel_broker.config import load
from semel_broker.context import Broker, RequestContext
from semel_broker.dispatch import Dispatcher
from semel_broker.handlers import HANDLERS, Handler, k18_api_versions
from semel_broker.limits import Limits
from semel_broker.server import Server
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from semel_protocol.messages.k01_fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FETCH, PRODUCE, HEARTBEAT, API_VERSIONS, INIT_PRODUCER_ID = 1, 0, 12, 18, 22


class Bench:
    """A server over handlers of the test, and what they saw."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.started: list[str] = []
        self.gates: dict[str, asyncio.Future[None]] = {}
        self.handlers: dict[int, Handler] = {
            PRODUCE: self._produce,
            HEARTBEAT: self._heartbeat,
            API_VERSIONS: k18_api_versions.handle,
        }
        self.server: Server | None = None
        self.port = 0

    async def start(self, limits: Limits | None = None, **settings: str) -> None:
        config = load(overrides=[f"{key.replace('_', '.')}={value}" for key, value in settings.items()])
        config.limits = limits or Limits()
        broker = cast("Broker", SimpleNamespace(log=self.log, config=config))
        self.server = Server(Dispatcher(broker, self.handlers), config, self.log, asyncio.get_running_loop())
        self.port = await self.server.listen("127.0.0.1", 0)

    async def wire(self) -> Wire:
        return await Wire.connect(self.port)

    def hold(self, name: str) -> None:
        """Requests of this name are not answered before `let`."""
        self.gates[name] = asyncio.get_running_loop().create_future()

    def let(self, name: str) -> None:
        self.gates.pop(name).set_result(None)

    def reasons(self) -> list[object]:
        return [line["reason"] for line in self.log.of("connection_closed")]

    def _produce(self, request: ProduceRequest, ctx: RequestContext) -> Any:
        name = request.topic_data[0].name
        self.started.append(name)
        gate = self.gates.get(name)
        if request.acks == 0:
            return None
        return ProduceResponse(throttle_time_ms=int(name)) if gate is None else self._later(name, gate)

    async def _later(self, name: str, gate: asyncio.Future[None]) -> ProduceResponse:
        await gate
        return ProduceResponse(throttle_time_ms=int(name))

    async def _heartbeat(self, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
        self.started.append(request.group_id)
        if gate := self.gates.get(request.group_id):
            await gate
        if request.group_id == "bug":
            raise ZeroDivisionError("a bug of ours")
        if request.group_id == "refuse":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "who?")
        return HeartbeatResponse()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    if made.server is not None:
        await made.server.stop(0.1)


def heartbeat(name: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=name, generation_id=1, member_id="m")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


# --- order ---------------------------------------------------------------------------------------------------


async def test_answers_come_in_request_order_though_produces_complete_in_another(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    for name in "123":
        bench.hold(name)
        wire.send(produce_request(name, None))
    await until(lambda: bench.started == ["1", "2", "3"])  # none holds up the next
    bench.let("3")
    bench.let("1")
    assert (await wire.receive()).throttle_time_ms == 1
    bench.let("2")
    assert [(await wire.receive()).throttle_time_ms for _ in range(2)] == [2, 3]
    await wire.close()


async def test_any_other_request_holds_back_what_follows_until_it_is_answered(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    bench.hold("g")
    wire.send(heartbeat("g"))
    wire.send(produce_request("7", None))
    await until(lambda: bench.started == ["g"])
    other = await bench.wire()
    await other.call(produce_request("8", None))  # another connection is not held back
    assert bench.started == ["g", "8"]
    bench.let("g")
    assert isinstance(await wire.receive(), HeartbeatResponse)
    assert (await wire.receive()).throttle_time_ms == 7
    await wire.close()
    await other.close()


async def test_acks_0_is_not_answered_and_does_not_shift_the_order(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    bench.hold("1")
    wire.send(produce_request("1", None))
    wire.forget(wire.send(produce_request("2", None, acks=0)))
    wire.send(heartbeat("g"))
    bench.let("1")
    assert (await wire.receive()).throttle_time_ms == 1
    assert isinstance(await wire.receive(), HeartbeatResponse)
    assert bench.started == ["1", "2", "g"]
    await wire.close()


async def test_frames_cut_at_every_byte_arrive_whole(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    recorded = Recorder()
    Wire(cast("Any", None), cast("Any", recorded)).send(heartbeat("g"))
    frame = b"".join(recorded.chunks)
    for cut in range(len(frame) + 1):
        wire.send_bytes(frame[:cut])
        await asyncio.sleep(0)
        wire.send_bytes(frame[cut:] + frame)  # the second one usually in one piece with the end of the first
        assert len(await wire.receive_frame()) == len(await wire.receive_frame())
    await wire.close()


class Recorder:
    """Stands for a StreamWriter, to see what `Wire.send` writes."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def writelines(self, chunks: list[bytes]) -> None:
        self.chunks += chunks


# --- errors --------------------------------------------------------------------------------------------------


async def test_a_refusal_is_answered_and_the_connection_lives(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    assert (await wire.call(heartbeat("refuse"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await wire.call(heartbeat("g"))).error_code == 0
    await wire.close()


async def test_a_bug_of_ours_is_logged_and_costs_one_connection(bench: Bench) -> None:
    await bench.start()
    wire, other = await bench.wire(), await bench.wire()
    wire.send(heartbeat("bug"))
    assert await wire.closed_by_peer()
    assert (await other.call(heartbeat("g"))).error_code == 0
    assert isinstance(bench.log.of("request_failed")[0]["exc_info"], ZeroDivisionError)
    assert bench.reasons() == ["internal_error"]
    await other.close()


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big", signed=True) + payload


HEADER = bytes.fromhex("000c 0003 00000001 0001 63")  # Heartbeat v3, correlation id 1, client "c"
BAD_INPUT = {
    "negative length": (b"\xff\xff\xff\xff" + bytes(8), "malformed_frame"),
    "zero length": (bytes(4) + bytes(8), "malformed_frame"),
    "length of 2 GiB": (b"\x7f\xff\xff\xff" + bytes(8), "malformed_frame"),
    "heartbeat of 17 MiB": ((17 << 20).to_bytes(4, "big") + HEADER, "malformed_frame"),
    "client id longer than the frame": (frame(bytes.fromhex("000c 0003 00000001 7fff 63")), "malformed_header"),
    "client id that is no UTF-8": (frame(bytes.fromhex("000c 0003 00000001 0001 ff")), "malformed_header"),
    "unknown api": (frame(bytes.fromhex("03e7 0000 00000001 ffff")), "api_not_served"),
    "negative api": (frame(bytes.fromhex("ffff 0000 00000001 ffff")), "api_not_served"),
    "declared but not served api": (frame(bytes.fromhex("001a 0000 00000001 ffff")), "api_not_served"),
    "version too high": (frame(bytes.fromhex("000c 0004 00000001 ffff")), "version_not_served"),
    "negative version": (frame(bytes.fromhex("000c ffff 00000001 ffff")), "version_not_served"),
    "negative version of ApiVersions": (frame(bytes.fromhex("0012 ffff 00000001 ffff")), "version_not_served"),
    "version below those served": (frame(bytes.fromhex("0000 0002 00000001 ffff")), "version_not_served"),
    "body cut short": (frame(HEADER + bytes.fromhex("0001 67 0000")), "malformed_request"),
    "no body": (frame(HEADER), "malformed_request"),
    "null where not nullable": (frame(HEADER + bytes.fromhex("ffff 00000001 0001 6d ffff")), "malformed_request"),
    "string that is no UTF-8": (frame(HEADER + bytes.fromhex("0001 ff 00000001 0001 6d ffff")), "malformed_request"),
    "array of 2 billion": (
        frame(bytes.fromhex("0000 0007 00000001 ffff  ffff 0001 00000000 7fffffff")),
        "malformed_request",
    ),
    "20 million tagged fields": (
        frame(bytes.fromhex("0012 0003 00000001 0001 63 80dac409 ") + bytes(60)),
        "malformed_request",
    ),
}


@pytest.mark.parametrize("what", BAD_INPUT)
async def test_bad_input_closes_that_one_connection_and_says_why(bench: Bench, what: str) -> None:
    data, reason = BAD_INPUT[what]
    await bench.start()
    good, bad = await bench.wire(), await bench.wire()
    bad.send_bytes(data)
    assert await bad.closed_by_peer()
    assert bench.reasons() == [reason]
    assert (await good.call(heartbeat("g"))).error_code == 0
    await good.close()
    await bad.close()


async def test_bytes_behind_a_body_are_tolerated(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    wire.send_bytes(frame(HEADER + bytes.fromhex("0001 67 00000001 0001 6d ffff") + b"more"))
    assert await wire.receive_frame() == bytes.fromhex("00000001 00000000 0000")
    await wire.close()


async def test_what_was_received_before_bad_input_has_been_started(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    wire.send(produce_request("1", None))
    wire.send_bytes(b"\xff" * 16)
    await wire.closed_by_peer()
    assert bench.started in (["1"], [])  # one segment: the frame error is found before anything is started
    assert bench.reasons() == ["malformed_frame"]


# --- ApiVersions ---------------------------------------------------------------------------------------------


async def test_api_versions_vectors_of_the_contract(bench: Bench) -> None:
    bench.handlers = {API_VERSIONS: k18_api_versions.handle}
    await bench.start()
    wire = await bench.wire()
    wire.send_bytes(bytes.fromhex("0000001500120003000000010001630004 6c6962 04 312e3000"))
    served = await wire.receive_frame()
    rows = len(HANDLERS) + 1  # compact: one more than there are
    assert served[:7] == bytes.fromhex("00000001 0000") + bytes([rows])  # header 0: no tag buffer before the error
    wire.send_bytes(bytes.fromhex("0000001500120005000000010001630004 6c6962 04 312e3000"))
    assert await wire.receive_frame() == bytes.fromhex("00000001 0023 00000001 0012 0000 0004")
    await wire.close()


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_is_answered_in_every_version(bench: Bench, version: int) -> None:
    await bench.start()
    wire = await bench.wire()
    response = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
    assert response.error_code == 0
    rows = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert rows[18] == (0, 4)
    assert {low for low, _ in rows.values()} == {0}
    assert 26 not in rows  # no transactions yet
    await wire.close()


# --- bounds --------------------------------------------------------------------------------------------------


async def test_reading_pauses_while_too_many_requests_are_unanswered(bench: Bench) -> None:
    await bench.start(Limits(in_flight_requests_max=4))
    wire = await bench.wire()
    bench.hold("1")
    for _ in range(50):
        wire.send(produce_request("1", b"x" * 50_000))
    await until(lambda: len(bench.started) >= 4)
    await asyncio.sleep(0.05)
    assert len(bench.started) < 10, "the rest stays with the peer"
    bench.let("1")
    for _ in range(50):
        assert (await wire.receive()).throttle_time_ms == 1
    assert len(bench.started) == 50
    await wire.close()


async def test_in_flight_bytes_are_given_back_whatever_happens(bench: Bench) -> None:
    await bench.start(Limits(in_flight_bytes_max=100_000))
    assert bench.server is not None
    bench.hold("1")
    gone, stays, cut = await bench.wire(), await bench.wire(), await bench.wire()
    for wire in (gone, stays):
        wire.send(produce_request("1", b"x" * 200_000))
    cut.send_bytes((300_000).to_bytes(4, "big") + bytes(1000))
    await until(lambda: bench.server is not None and bench.server.in_flight.taken > 700_000)
    await gone.close()
    await cut.close()
    bench.let("1")
    await stays.receive()
    await stays.close()
    await until(lambda: bench.server is not None and bench.server.connection_count == 0)
    assert bench.server.in_flight.taken == 0


async def test_large_frames_share_a_memory_bound_and_all_get_through(bench: Bench) -> None:
    await bench.start(Limits(total_in_flight_bytes_max=1_500_000))
    assert bench.server is not None
    seen: list[int] = []

    def produce(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse:
        assert bench.server is not None
        seen.append(bench.server.in_flight.taken)
        return ProduceResponse()

    bench.handlers[PRODUCE] = produce
    wires = [await bench.wire() for _ in range(8)]
    for wire in wires:
        wire.send(produce_request("1", b"x" * 1_000_000))
    for wire in wires:
        assert isinstance(await wire.receive(), ProduceResponse)
    assert len(seen) == 8
    assert max(seen) <= 1_500_000
    for wire in wires:
        await wire.close()


async def test_a_frame_above_the_total_bound_is_served_alone(bench: Bench) -> None:
    await bench.start(Limits(total_in_flight_bytes_max=1000))
    wire = await bench.wire()
    assert isinstance(await wire.call(produce_request("1", b"x" * 500_000)), ProduceResponse)
    await wire.close()


def big_fetch(bench: Bench, size: int) -> None:
    chunk = bytes(size)

    def fetch(request: Any, ctx: RequestContext) -> FetchResponse:
        bench.started.append("fetch")
        rows = [FetchResponsePartition(records=chunk)]
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=rows)])

    bench.handlers[FETCH] = fetch


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
    assert started <= 4, "240 MiB were asked for; no more than what the socket took was made"
    wire.reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(60):
        await wire.receive()
    await wire.close()


async def test_when_answers_pile_up_fetches_wait_and_who_does_not_read_is_closed(bench: Bench) -> None:
    big_fetch(bench, 8 << 20)
    await bench.start(Limits(total_write_buffer_bytes_max=1000, stalled_reader_timeout_ms=200))
    stalled, reads = await bench.wire(), await bench.wire()
    stalled.reader._transport.pause_reading()  # type: ignore[attr-defined]
    stalled.send(fetch_request("t", 0))
    await until(lambda: bench.server is not None and bench.server.unsent_exhausted)
    reads.send(fetch_request("t", 0))
    await asyncio.sleep(0.05)
    assert bench.started == ["fetch"]
    assert (await reads.receive()).responses[0].topic == "t"
    assert bench.reasons() == ["does_not_read"]
    await reads.close()
    await stalled.close()


async def test_idle_connections_are_closed_those_that_wait_for_us_are_not(bench: Bench) -> None:
    await bench.start(connections_max_idle_ms="150")
    idle, waiting = await bench.wire(), await bench.wire()
    bench.hold("g")
    waiting.send(heartbeat("g"))
    assert await idle.closed_by_peer()
    await asyncio.sleep(0.2)
    bench.let("g")
    assert (await waiting.receive()).error_code == 0
    assert bench.reasons() == ["idle"]
    await waiting.close()


async def test_slow_loris_frames_are_closed_though_bytes_keep_coming(bench: Bench) -> None:
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


async def test_what_a_lost_peer_has_begun_goes_on_but_its_fetches_end(bench: Bench) -> None:
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


async def test_stopping_answers_what_is_in_progress(bench: Bench) -> None:
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
