"""One connection alone: the order of answers, pipelining, errors, bad input, ApiVersions."""

import asyncio
from typing import Any, cast

import pytest
from broker.bench import Bench, heartbeat, until
from broker.wire import Wire, produce_request
from semel_broker.config.loading import load
from semel_broker.handlers import k18_api_versions
from semel_broker.handlers.api_versions import offered
from semel_protocol.api import API_OF
from semel_protocol.errors import ErrorCode
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest

FETCH, PRODUCE, HEARTBEAT, API_VERSIONS, INIT_PRODUCER_ID = 1, 0, 12, 18, 22


# --- order ---------------------------------------------------------------------------------------------------


async def test_answers_come_in_request_order_though_produces_complete_in_another(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    for name in "123":
        bench.hold(name)
        wire.send(produce_request(name, None))
    await until(lambda: bench.started == ["1", "2", "3"])  # no produce holds back the next
    bench.let("3")
    bench.let("1")
    assert (await wire.receive()).throttle_time_ms == 1
    bench.let("2")
    assert [(await wire.receive()).throttle_time_ms for _ in range(2)] == [2, 3]
    await wire.close()


async def test_other_requests_hold_back_later_ones_until_answered(bench: Bench) -> None:
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
    recorded = RecordedBytes()
    Wire(cast("Any", None), cast("Any", recorded)).send(heartbeat("g"))
    frame = b"".join(recorded.chunks)
    for cut in range(len(frame) + 1):
        wire.send_bytes(frame[:cut])
        await asyncio.sleep(0)
        wire.send_bytes(frame[cut:] + frame)  # the second one usually in one piece with the end of the first
        assert len(await wire.receive_frame()) == len(await wire.receive_frame())
    await wire.close()


class RecordedBytes:
    """A StreamWriter that keeps the bytes that `Wire.send` writes."""

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


async def test_an_unexpected_exception_is_logged_and_closes_one_connection(bench: Bench) -> None:
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
    "version too high": (frame(bytes.fromhex("000c 0005 00000001 ffff")), "version_not_served"),
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


@pytest.mark.proves("invalid-frame", "unknown-version")
@pytest.mark.parametrize("what", BAD_INPUT)
async def test_bad_input_closes_its_connection_and_logs_the_reason(bench: Bench, what: str) -> None:
    data, reason = BAD_INPUT[what]
    await bench.start()
    good, bad = await bench.wire(), await bench.wire()
    bad.send_bytes(data)
    assert await bad.closed_by_peer()
    assert bench.reasons() == [reason]
    assert (await good.call(heartbeat("g"))).error_code == 0
    await good.close()
    await bad.close()


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        (bytes.fromhex("16030100c8010000c40303"), "error", "looks like TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "error", "looks like HTTP"),
        (frame(bytes.fromhex("0011 0001 00000001 ffff 0005 504c41494e")), "hint", "SASL"),
    ],
)
async def test_another_protocol_is_named_in_the_log(bench: Bench, data: bytes, field: str, words: str) -> None:
    await bench.start()
    for lead in (b"", b"".join(encode_request_frame(API_OF[HeartbeatRequest], 3, 1, "c", heartbeat("before")))):
        wire = await bench.wire()
        wire.send_bytes(lead)
        if lead:
            await wire.receive_frame()
        wire.send_bytes(data[:3])
        wire.send_bytes(data[3:])
        assert await wire.closed_by_peer()
        assert words in bench.log.of("connection_closed")[-1][field]
        await wire.close()


@pytest.mark.proves("invalid-frame")
async def test_a_partial_frame_of_a_disconnected_peer_is_dropped(bench: Bench) -> None:
    """Cut at every byte: a partial frame is not served, and other connections are not affected."""
    await bench.start()
    whole = b"".join(encode_request_frame(API_OF[HeartbeatRequest], 3, 1, "c", heartbeat("cut")))
    good = await bench.wire()
    for cut in range(len(whole)):
        bad = await bench.wire()
        bad.send_bytes(whole[:cut])
        await bad.close()
    assert (await good.call(heartbeat("g"))).error_code == 0
    await until(lambda: bench.server is not None and bench.server.connection_count == 1)
    assert bench.started == ["g"]
    assert bench.log.of("request_failed") == []
    await good.close()


async def test_bytes_behind_a_body_are_tolerated(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    wire.send_bytes(frame(HEADER + bytes.fromhex("0001 67 00000001 0001 6d ffff") + b"more"))
    assert await wire.receive_frame() == bytes.fromhex("00000001 00000000 0000")
    await wire.close()


async def test_requests_before_bad_input_take_effect(bench: Bench) -> None:
    await bench.start()
    wire = await bench.wire()
    bench.hold("1")
    wire.send(produce_request("1", None))
    await until(lambda: bench.started == ["1"])
    wire.send_bytes(b"\xff" * 16)
    assert await wire.closed_by_peer()
    assert bench.reasons() == ["malformed_frame"]
    bench.let("1")
    await until(lambda: bench.server is not None and not bench.server.context.tasks)
    await wire.close()


# --- ApiVersions ---------------------------------------------------------------------------------------------


async def test_api_versions_vectors_of_the_contract(bench: Bench) -> None:
    bench.handlers = {API_VERSIONS: k18_api_versions.handle}
    await bench.start()
    wire = await bench.wire()
    wire.send_bytes(bytes.fromhex("0000001500120003000000010001630004 6c6962 04 312e3000"))
    served = await wire.receive_frame()
    rows = len(offered(load())) + 1  # compact arrays encode their length plus one
    assert served[:7] == bytes.fromhex("00000001 0000") + bytes([rows])  # header 0: no tag buffer before the error
    wire.send_bytes(bytes.fromhex("0000001500120005000000010001630004 6c6962 04 312e3000"))
    assert await wire.receive_frame() == bytes.fromhex("00000001 0023 00000001 0012 0000 0004")
    await wire.close()


@pytest.mark.proves("unknown-version")
@pytest.mark.parametrize("version", range(5))
async def test_api_versions_is_answered_in_every_version(bench: Bench, version: int) -> None:
    await bench.start()
    wire = await bench.wire()
    response = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
    assert response.error_code == 0
    rows = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert rows[18] == (0, 4)
    assert {low for low, _ in rows.values()} == {0}
    await wire.close()
