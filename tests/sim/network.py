"""The network between the hosts: latency, lost segments, partitions, resets, refused and unanswered connections.

Connections behave as in TCP: each direction keeps its order (`pipe`). There is no order between connections.
"""

from __future__ import annotations

import errno
from asyncio import BaseProtocol, Future
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sim.holds import Conversation, HeldConnection, HeldRequest, Hold, LateRequest, RequestTrigger
from sim.pipe import SimPipe
from sim.transport import FIRST_CLIENT_PORT, SimServer, SimTransport

if TYPE_CHECKING:
    from sim.host import Host
    from sim.loop import SimLoop
    from sim.world import SimWorld

P = TypeVar("P", bound=BaseProtocol)
NS = 1_000_000_000
NS_PER_MS = 1_000_000
SYN_RETRY_FIRST_NS = NS


class NetworkWeather(msgspec.Struct):
    """The behaviour of the network without faults. Times in milliseconds.

    A segment takes between the two latencies, mostly near the lower one. A share of `spike_rate` takes up to `spike_ms`
    longer, which changes the order between connections. `split_rate`: the share of writes that arrive in two parts.
    `windows`: the bytes that the kernels take before the writer must wait; one value is drawn for each direction.
    `give_up_ns`: the time of retransmission after which a connection is lost.
    """

    latency_ms: tuple[float, float] = (0.1, 2.0)
    spike_rate: float = 0.01
    spike_ms: float = 50.0
    split_rate: float = 0.1
    windows: tuple[int, ...] = (4096, 65_536, 1 << 20)
    give_up_ns: int = 20 * NS
    connect_give_up_ns: int = 15 * NS


class SimNetwork:
    """The network of a world. `watching`: frames are followed on new connections, which holds and triggers need."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.weather = NetworkWeather()
        self.watching = False
        self.holds: list[Hold] = []
        self.aims: list[RequestTrigger] = []
        self.late: list[LateRequest] = []
        self.held: list[HeldRequest] = []
        """All requests and answers that were held."""
        self._cut: dict[tuple[str, str], None] = {}
        self._slow: dict[tuple[str, str], float] = {}
        self._connections = 0
        self._pairs: dict[SimTransport, SimTransport] = {}

    # Faults

    def is_open(self, source: Host, sink: Host) -> bool:
        return (source.name, sink.name) not in self._cut

    def cut(self, source: str, sink: str, *, both_ways: bool = True) -> None:
        """Stop all segments from `source` to `sink`, and by default in the other direction too."""
        self._cut[source, sink] = None
        if both_ways:
            self._cut[sink, source] = None
        self.world.note(source, f"cut off from {sink}{'' if both_ways else ', one way'}")

    def mend(self, source: str, sink: str) -> None:
        """Open both directions again."""
        if (source, sink) in self._cut or (sink, source) in self._cut:
            self._cut.pop((source, sink), None)
            self._cut.pop((sink, source), None)
            self.world.note(source, f"linked with {sink} again")

    def slow_down(self, source: str, sink: str, by_ms: float) -> None:
        """Each segment from `source` to `sink` takes `by_ms` longer; 0 ends it."""
        self._slow[source, sink] = by_ms
        self.world.note(source, f"{by_ms:.0f} ms farther from {sink}")

    def reset(self, source: str, sink: str) -> None:
        """Reset all connections between two hosts, as a middlebox would. Bytes on the wire are lost."""
        self.world.note(source, f"connections with {sink} reset")
        for endpoint in list(self._pairs):
            if (endpoint.host.name, self._pairs[endpoint].host.name) in ((source, sink), (sink, source)):
                endpoint.outgoing.break_off()
                self.world.count("came/ends of connections reset")
                delay_ns = self.latency_ns(self.world.random("reset", endpoint.number), endpoint.host, endpoint.host)
                self.world.after(delay_ns, endpoint.received_reset)

    def hold(self, hold: Hold) -> None:
        """See `Hold`. Needs `watching` from the start."""
        assert self.watching, "frames are not followed: set network.watching before connections are made"
        self.holds.append(hold)

    def aim(self, trigger: RequestTrigger) -> None:
        """See `RequestTrigger`. Needs `watching` from the start."""
        assert self.watching, "frames are not followed: set network.watching before connections are made"
        self.aims.append(trigger)

    def heal(self) -> None:
        """End all faults: links are open and fast, nothing is held, and latencies have no spikes."""
        self.weather = msgspec.structs.replace(self.weather, spike_rate=0.0)
        self._cut.clear()
        self._slow.clear()
        self.holds.clear()
        self.aims.clear()
        self.late.clear()
        for endpoint in self._pairs:
            endpoint.outgoing.release()
        self.world.note("network", "healed")

    def latency_ns(self, rng: Random, source: Host, sink: Host) -> int:
        """The time of the next segment."""
        weather = self.weather
        low, high = weather.latency_ms
        chance = rng.random()
        taken_ms = low + (high - low) * chance * chance
        if weather.spike_rate and rng.random() < weather.spike_rate:
            taken_ms += weather.spike_ms * rng.random()
        if self._slow:
            taken_ms += self._slow.get((source.name, sink.name), 0.0)
        return int(taken_ms * NS_PER_MS) + 1

    # Called by event loops

    def listen(
        self, loop: SimLoop, factory: Callable[[], BaseProtocol], port: int, *, accepts: bool = True
    ) -> SimServer:
        host = loop.host
        if port == 0:
            port = max([9091, *host.listeners]) + 1
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of {host.name} is taken")
        host.listeners[port] = listener = SimServer(loop, factory, host, port)  # type: ignore[abstract]
        listener.accepts = accepts
        return listener

    async def connect(self, loop: SimLoop, factory: Callable[[], P], host: str, port: int) -> tuple[SimTransport, P]:
        """Raise ConnectionRefusedError, TimeoutError (as OSError), ConnectionResetError."""
        if host not in self.world.hosts:
            raise OSError(errno.EHOSTUNREACH, f"there is no host {host}")
        dial = _Dial(self, loop, self.world.hosts[host], port)
        dial.send()
        try:
            endpoint = await dial.answer
        except BaseException:
            dial.given_up = True
            if dial.endpoint is not None:
                dial.endpoint.abort()
            raise
        protocol = factory()
        endpoint.connected(protocol)
        return endpoint, protocol

    def pair(self, loop: SimLoop, listener: SimServer, rng: Random) -> SimTransport:
        """Make both ends of a new connection. Returns the end of the connecting host."""
        self._connections += 1
        number = self._connections
        here = (loop.host.name, FIRST_CLIENT_PORT + number)
        there = (listener.host.name, listener.port)
        near = SimTransport(loop, 2 * number, {"sockname": here, "peername": there})
        far = SimTransport(listener.loop, 2 * number + 1, {"sockname": there, "peername": here})
        near.outgoing = far.incoming = SimPipe(self, near, far, rng)
        far.outgoing = near.incoming = SimPipe(self, far, near, self.world.random("answers", loop.host.name, number))
        if self.watching and listener.host.is_kafka:
            world = self.world
            said = partial(self._note_held, loop.host.name)
            talk = Conversation(
                self.holds, self.aims, self.late, loop.host.name, listener.host.name, world.note, world.tell, said
            )  # fmt: skip
            talk.wire = HeldConnection(partial(self._release, near.outgoing), near.reset_client)
            near.outgoing.watch, far.outgoing.watch = talk.watches()
        self._pairs = {end: peer for end, peer in self._pairs.items() if not (end.gone and peer.gone)}
        self._pairs[near], self._pairs[far] = far, near
        return near

    def _release(self, pipe: SimPipe, delay_ms: float) -> None:
        self.world.after(int(delay_ms * NS_PER_MS) + 1, pipe.release)

    def _note_held(self, source: str, api: str, delay_ms: float, is_answer: bool) -> None:
        self.world.count(f"came/{'answers to' if is_answer else 'requests'} {api} held")
        self.held.append(HeldRequest(self.world.now_ms, source, api, delay_ms, is_answer))

    def close(self) -> None:
        self._pairs.clear()


class _Dial:
    """One attempt to connect: it repeats the SYN until there is an answer, or until it gives up."""

    def __init__(self, network: SimNetwork, loop: SimLoop, target: Host, port: int) -> None:
        self.network, self.loop, self.target, self.port = network, loop, target, port
        self.answer: Future[Any] = loop.create_future()
        self.endpoint: SimTransport | None = None
        self.given_up = False
        self._number = loop.host.connections_dialed = loop.host.connections_dialed + 1
        self._rng = network.world.random("requests", loop.host.name, self._number)
        self._began_ns = network.world.now_ns
        self._retry_ns = SYN_RETRY_FIRST_NS

    def send(self) -> None:
        self.network.world.after(self._latency_ns(), self._syn_arrives)

    def _syn_arrives(self) -> None:
        network, world = self.network, self.network.world
        here, target = self.loop.host, self.target
        if self.loop.dead or self.given_up:
            return
        if not (target.machine_up and network.is_open(here, target) and network.is_open(target, here)):
            if world.now_ns - self._began_ns > network.weather.connect_give_up_ns:
                self._fail(TimeoutError(errno.ETIMEDOUT, f"no answer from {target.name}"))
            else:
                world.after(self._retry_ns, self._syn_arrives)
                self._retry_ns *= 2
            return
        listener = target.listeners.get(self.port)
        if listener is None or not listener.accepts:
            error = ConnectionRefusedError(errno.ECONNREFUSED, f"{target.name}:{self.port} refuses")
            world.after(self._latency_ns(), self._fail, error)
            return
        self.endpoint = near = network.pair(self.loop, listener, self._rng)
        listener.loop.call_soon(listener.accept, near.outgoing.sink)
        world.after(self._latency_ns(), self._established)

    def _established(self) -> None:
        assert self.endpoint is not None
        if not self.answer.done():
            self.loop.call_soon(self._succeed)

    def _succeed(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self.endpoint)

    def _fail(self, error: OSError) -> None:
        def tell() -> None:
            if not self.answer.done():
                self.answer.set_exception(error)

        self.loop.call_soon(tell)

    def _latency_ns(self) -> int:
        return self.network.latency_ns(self._rng, self.loop.host, self.target)
