"""The network: each connection keeps the promises of TCP. Between connections there is no order."""

from __future__ import annotations

import asyncio
from asyncio import BaseTransport, BufferedProtocol, Protocol, Transport
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from sim.holds import Hold
from sim.host import Host
from sim.world import NS, SimWorld

PORT = 7
PAYLOAD = Random(5).randbytes(300_000)


class RecordingPeer(Protocol):
    """Records the calls of the transport. `stays_open`: it continues to send after the other end's half close."""

    stays_open = False

    def __init__(self) -> None:
        self.got = bytearray()
        self.said: list[str] = []
        self.at_ns: list[int] = []
        self.lost: BaseException | None = None
        self.is_lost = False
        self.world: SimWorld | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self.transport = cast(Transport, transport)
        self.said.append("made")

    def data_received(self, data: bytes) -> None:
        assert not self.is_lost
        self.got += data
        if self.world is not None:
            self.at_ns += [self.world.now_ns] * len(data)

    def eof_received(self) -> bool:
        self.said.append("eof")
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.is_lost
        self.lost, self.is_lost = exc, True
        self.said.append(f"lost {type(exc).__name__ if exc else 'None'}")

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")


class Buffered(RecordingPeer, BufferedProtocol):
    """A RecordingPeer with a buffer of its own that is smaller than the received data."""

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = bytearray(1000)
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))


class HostPair:
    """Hosts a and b, with a listener on b. After `connect`, `near` and `far` are the ends of the first connection."""

    def __init__(self, seed: int = 1, far: Callable[[], RecordingPeer] = RecordingPeer) -> None:
        self.world = SimWorld(seed)
        self.a, self.b = self.world.host("a"), self.world.host("b")
        self.accepted: list[RecordingPeer] = []
        self.near = RecordingPeer()
        self.error: OSError | None = None
        self._far = far
        self.b.boot(self.serve)

    @property
    def far(self) -> RecordingPeer:
        return self.accepted[0]

    async def serve(self, host: Host) -> None:
        def accept() -> RecordingPeer:
            peer = self._far()
            peer.world = self.world
            self.accepted.append(peer)
            return peer

        await asyncio.get_running_loop().create_server(accept, host.name, PORT)
        await asyncio.sleep(10_000)

    async def dial(self, host: Host) -> None:
        self.near.world = self.world
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.near, "b", PORT)
        except OSError as error:
            self.error = error
        await asyncio.sleep(10_000)

    def connect(self) -> HostPair:
        self.go(0.5)
        self.a.boot(self.dial)
        self.go(1)
        return self

    def go(self, seconds: float) -> None:
        self.world.run(self.world.now_ns + int(seconds * NS))

    def close(self) -> None:
        self.world.close()
        assert self.world.failures == []


def rough(pair: HostPair) -> None:
    weather = pair.world.network.weather
    weather.latency_ms = (0.1, 30.0)
    weather.spike_rate, weather.spike_ms = 0.2, 2_000.0
    weather.split_rate = 0.8
    weather.windows = (100, 5_000, 1 << 20)


def cut_now_and_then(pair: HostPair, rng: Random) -> None:
    network, world = pair.world.network, pair.world
    for number in range(5):
        start_ns = (10 * number + rng.randrange(5)) * NS
        source, sink = rng.choice((("a", "b"), ("b", "a")))
        both_ways = rng.random() < 0.5
        world.after(start_ns, lambda *link, both_ways=both_ways: network.cut(*link, both_ways=both_ways), source, sink)
        world.after(start_ns + rng.randrange(4 * NS), network.mend, source, sink)


@pytest.mark.parametrize("far", [RecordingPeer, Buffered])
def test_each_direction_gives_every_byte_once_and_in_order(far: type[RecordingPeer]) -> None:
    for seed in range(12):
        pair = HostPair(seed, far)
        rng = Random(seed)
        rough(pair)
        pair.connect()
        pair.go(10)  # with any latency
        cut_now_and_then(pair, rng)
        for peer in (pair.near, pair.far):
            at, due_ns = 0, 0
            while at < len(PAYLOAD):
                count = rng.choice((1, 100, 10_000, 50_000))
                due_ns += int(rng.expovariate(2) * NS)
                pair.world.after(due_ns, peer.transport.write, PAYLOAD[at : at + count])
                at += count
        pair.go(10_000)
        assert bytes(pair.near.got) == PAYLOAD
        assert bytes(pair.far.got) == PAYLOAD
        pair.close()


def test_between_connections_there_is_no_order() -> None:
    orders = set()
    for seed in range(30):
        pair = HostPair(seed)
        world = pair.world
        world.network.weather.spike_rate = 0.3
        order: list[str] = []

        class NotingPeer(RecordingPeer):
            def data_received(self, data: bytes, order: list[str] = order) -> None:
                order.append(data.decode())

        async def dial(host: Host) -> None:
            loop = asyncio.get_running_loop()
            first, _ = await loop.create_connection(Protocol, "b", PORT)
            second, _ = await loop.create_connection(Protocol, "b", PORT)
            first.write(b"1")
            second.write(b"2")
            await asyncio.sleep(10)

        pair._far = NotingPeer
        pair.go(0.1)
        pair.a.boot(dial)
        pair.go(10)
        orders.add("".join(order))
        pair.close()
    assert orders == {"12", "21"}


def test_a_connection_to_a_port_without_a_listener_is_refused() -> None:
    pair = HostPair()
    pair.b.kill()
    pair.connect()
    assert isinstance(pair.error, ConnectionRefusedError)
    pair.close()


@pytest.mark.parametrize("why", ["dark", "cut", "one way"])
def test_a_connection_without_an_answer_times_out(why: str) -> None:
    pair = HostPair()
    if why == "dark":
        pair.b.power_loss()
    else:
        pair.world.network.cut("b", "a", both_ways=why == "cut")
    pair.connect()
    early = pair.error
    pair.go(60)
    assert early is None
    assert isinstance(pair.error, TimeoutError)
    pair.close()


def test_a_connection_is_made_while_the_process_is_paused() -> None:
    pair = HostPair()
    pair.go(0.1)
    pair.b.pause()
    pair.connect()
    assert pair.near.said == ["made"]
    pair.near.transport.write(b"hello")
    pair.go(5)
    assert pair.accepted == []
    pair.b.resume()
    pair.go(1)
    assert pair.far.got == b"hello"
    pair.close()


def test_bytes_in_the_kernel_arrive_after_the_process_is_killed() -> None:
    pair = HostPair().connect()
    pair.near.transport.write(b"last words")
    pair.a.kill()
    pair.go(5)
    assert pair.far.got == b"last words"
    assert pair.far.said == ["made", "eof", "lost None"]
    pair.close()


def test_a_process_killed_with_unread_bytes_resets_its_connections() -> None:
    pair = HostPair().connect()
    pair.b.pause()
    pair.near.transport.write(b"unread")
    pair.go(1)
    pair.b.kill()
    pair.go(1)
    assert isinstance(pair.near.lost, ConnectionResetError)
    pair.close()


def test_writing_to_a_process_that_is_gone_is_answered_with_a_reset() -> None:
    pair = HostPair()
    pair.near.stays_open = True
    pair.connect()
    pair.b.kill()
    pair.go(1)
    assert pair.near.said == ["made", "eof"]
    pair.near.transport.write(b"hello?")
    pair.go(1)
    assert isinstance(pair.near.lost, ConnectionResetError)
    pair.close()


def test_after_a_power_loss_there_is_silence_until_the_machine_is_back() -> None:
    pair = HostPair().connect()
    pair.b.power_loss()
    pair.go(5)
    pair.near.transport.write(b"hello?")
    pair.go(5)
    assert not pair.near.is_lost
    pair.b.boot(pair.serve)
    pair.go(5)
    assert isinstance(pair.near.lost, ConnectionResetError)
    pair.close()


def test_a_silent_peer_of_an_idle_connection_is_never_noticed() -> None:
    pair = HostPair().connect()
    pair.b.power_loss()
    pair.b.boot(pair.serve)
    pair.go(3_600)
    assert not pair.near.is_lost
    pair.close()


def test_a_partition_shorter_than_the_retransmission_time_loses_nothing() -> None:
    pair = HostPair().connect()
    pair.world.network.cut("a", "b")
    pair.near.transport.write(b"hello")
    pair.go(15)
    assert pair.far.got == b""
    pair.world.network.mend("a", "b")
    pair.go(10)
    assert pair.far.got == b"hello"
    assert not pair.near.is_lost
    pair.close()


def test_a_longer_partition_ends_the_connection_of_the_writer() -> None:
    pair = HostPair().connect()
    pair.world.network.cut("a", "b")
    pair.near.transport.write(b"hello")
    pair.go(60)
    assert isinstance(pair.near.lost, TimeoutError)
    assert not pair.far.is_lost  # it sends nothing and receives nothing
    pair.world.network.mend("a", "b")
    pair.far.transport.write(b"are you there?")
    pair.go(10)
    assert isinstance(pair.far.lost, ConnectionResetError)
    assert pair.far.got == b""
    pair.close()


def test_without_acknowledgements_the_writer_gives_up_although_the_bytes_arrived() -> None:
    pair = HostPair().connect()
    pair.world.network.cut("b", "a", both_ways=False)
    pair.near.transport.write(b"hello")
    pair.go(60)
    assert pair.far.got == b"hello"
    assert isinstance(pair.near.lost, TimeoutError)
    pair.close()


def test_a_reset_loses_the_bytes_on_the_wire() -> None:
    pair = HostPair().connect()
    pair.near.transport.write(b"hello")
    pair.world.network.reset("a", "b")
    pair.go(5)
    assert pair.far.got == b""
    assert isinstance(pair.near.lost, ConnectionResetError)
    assert isinstance(pair.far.lost, ConnectionResetError)
    pair.close()


@pytest.mark.parametrize("seed", range(1, 11))
def test_bytes_written_after_a_reset_do_not_arrive(seed: int) -> None:
    """Else the reader would get a stream with a hole: TCP delivers nothing behind bytes that are lost."""
    pair = HostPair(seed).connect()
    pair.near.transport.write(b"lost, ")
    pair.world.network.reset("a", "b")
    pair.near.transport.write(b"too late")  # no end has received the reset yet
    pair.go(5)
    assert pair.far.got == b""
    assert isinstance(pair.near.lost, ConnectionResetError)
    assert isinstance(pair.far.lost, ConnectionResetError)
    pair.close()


def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    pair = HostPair()
    pair.world.network.weather.windows = (10_000,)
    pair.connect()
    pair.far.transport.pause_reading()
    pair.near.transport.write(PAYLOAD)
    pair.go(5)
    assert pair.near.said == ["made", "pause"]
    assert pair.near.transport.get_write_buffer_size() == len(PAYLOAD) - 10_000
    assert pair.far.got == b""
    pair.far.transport.resume_reading()
    pair.go(60)
    assert pair.near.said == ["made", "pause", "resume"]
    assert pair.far.got == PAYLOAD
    pair.close()


def test_a_paused_reader_stops_the_writer() -> None:
    pair = HostPair()
    pair.world.network.weather.windows = (10_000,)
    pair.connect()
    pair.b.pause()
    pair.near.transport.write(PAYLOAD)
    pair.go(60)
    assert pair.near.said == ["made", "pause"]
    pair.b.resume()
    pair.go(60)
    assert pair.far.got == PAYLOAD
    pair.close()


def test_close_first_sends_the_written_bytes() -> None:
    pair = HostPair()
    pair.world.network.weather.windows = (5_000,)
    pair.connect()
    pair.near.transport.write(PAYLOAD)
    pair.near.transport.close()
    assert pair.near.transport.is_closing()
    pair.go(120)
    assert pair.far.got == PAYLOAD
    assert pair.near.said[-1] == "lost None"
    assert pair.far.said == ["made", "eof", "lost None"]
    pair.close()


def test_abort_drops_bytes_that_the_kernel_has_not_taken() -> None:
    pair = HostPair()
    pair.world.network.weather.windows = (5_000,)
    pair.connect()
    pair.near.transport.write(PAYLOAD)
    pair.near.transport.abort()
    pair.go(120)
    assert pair.far.got == PAYLOAD[:5_000]
    assert pair.near.said[-1] == "lost None"
    assert pair.far.said[-1] == "lost None"
    pair.close()


def test_a_half_closed_connection_still_carries_the_other_direction() -> None:
    pair = HostPair()
    pair.connect()
    pair.far.stays_open = True
    pair.near.transport.write(b"question")
    pair.near.transport.write_eof()
    pair.go(5)
    assert pair.far.said == ["made", "eof"]
    pair.far.transport.write(b"answer")
    pair.far.transport.close()
    pair.go(5)
    assert pair.near.got == b"answer"
    assert pair.near.said == ["made", "eof", "lost None"]
    pair.close()


def frame(api_key: int, number: int, size: int = 40) -> bytes:
    body = api_key.to_bytes(2, "big") + bytes(2) + number.to_bytes(4, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


def answer(number: int, size: int = 40) -> bytes:
    body = number.to_bytes(4, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("cut", [1, 3, 7, 52, 100_000])
def test_a_held_request_delays_later_bytes_and_no_earlier_ones(cut: int) -> None:
    pair = HostPair()
    pair.world.network.watching = True
    pair.connect()
    pair.world.network.hold(Hold(api_key=26, delay_ms=5_000, source="a", count=1))
    stream = frame(0, 1) + frame(26, 2) + frame(0, 3) + frame(26, 4)
    began_ns = pair.world.now_ns
    for at in range(0, len(stream), cut):
        pair.near.transport.write(stream[at : at + cut])
    pair.go(20)
    assert pair.far.got == stream
    size = len(frame(0, 1))
    head = 12 if cut < 12 else 0  # the head came in pieces: bytes sent before it was complete are not late
    late = [at_ns - began_ns >= 5 * NS for at_ns in pair.far.at_ns]
    assert not any(late[:size])
    assert all(late[size + head :])
    assert pair.far.at_ns[-1] - began_ns < 6 * NS  # the second of its kind is not held
    pair.close()


def test_a_held_answer_is_that_to_the_chosen_request() -> None:
    pair = HostPair()
    pair.world.network.watching = True
    pair.connect()
    pair.world.network.hold(Hold(api_key=26, delay_ms=5_000, answers=True))
    pair.near.transport.write(frame(0, 1) + frame(26, 2))
    pair.go(1)
    assert len(pair.far.got) == 2 * len(frame(0, 1))
    began_ns = pair.world.now_ns
    pair.far.transport.write(answer(1) + answer(2))
    pair.go(10)
    assert pair.near.got == answer(1) + answer(2)
    late = [at_ns - began_ns >= 5 * NS for at_ns in pair.near.at_ns]
    size = len(answer(1))
    assert late == [False] * size + [True] * size
    pair.close()


def test_other_connections_pass_a_held_one() -> None:
    pair = HostPair()
    pair.world.network.watching = True
    pair.connect()
    pair.world.network.hold(Hold(api_key=26, delay_ms=5_000))
    pair.near.transport.write(frame(26, 1))
    pair.go(0.1)
    other: dict[str, Any] = {}

    async def dial(host: Host) -> None:
        other["transport"], _ = await asyncio.get_running_loop().create_connection(Protocol, "b", PORT)
        other["transport"].write(frame(26, 2))
        await asyncio.sleep(100)

    pair.world.host("c").boot(dial)
    pair.go(1)
    assert pair.accepted[1].got == frame(26, 2)
    assert pair.far.got == b""
    pair.close()
