"""One direction of a TCP connection: the bytes arrive in the order in which they were written, or not at all.

A pipe models both kernels and the wire between them. It takes up to a window of bytes and cuts them into segments.
While the network is partitioned, it loses and retransmits them, and gives up after a while.
"""

from __future__ import annotations

import errno
from collections import deque
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from sim.holds import FrameWatch

if TYPE_CHECKING:
    from sim.network import SimNetwork
    from sim.transport import SimTransport

NS = 1_000_000_000
RETRANSMIT_FIRST_NS = NS // 5
RETRANSMIT_MOST_NS = 4 * NS

FIN = "FIN"
RST = "RST"
Segment = tuple[int, "bytes | str"]
"""The time when it arrives at the other end; bytes, FIN or RST."""


class SimPipe:
    """From `source` to `sink`. `room`: bytes that the kernels can take now. `on_wire`: bytes taken and not yet read."""

    __slots__ = (
        "_arrivals",
        "_last_due_ns",
        "_retransmit_ns",
        "_rng",
        "_scheduled",
        "_stalled_since_ns",
        "_turn",
        "closed",
        "network",
        "on_wire",
        "sink",
        "source",
        "watch",
        "window",
    )

    def __init__(self, network: SimNetwork, source: SimTransport, sink: SimTransport, rng: Random) -> None:
        self.network, self.source, self.sink = network, source, sink
        self.window = rng.choice(network.weather.windows)
        self.on_wire = 0
        self.closed = False  # FIN or RST has been sent, or the pipe is broken
        self.watch: FrameWatch | None = None
        self._rng = rng
        self._arrivals: deque[Segment] = deque()
        self._last_due_ns = 0
        self._scheduled = False
        self._turn = 0  # of the valid timer: `release` replaces it with an earlier one
        self._stalled_since_ns: int | None = None
        self._retransmit_ns = RETRANSMIT_FIRST_NS

    @property
    def room(self) -> int:
        return self.window - self.on_wire

    def send(self, data: bytes) -> None:
        """Take bytes; there must be room for them. A broken pipe loses them: no byte arrives behind a lost one."""
        if self.closed:
            return
        self.on_wire += len(data)
        if self.watch is None:
            self._send_segments(data, 0)
        else:
            for piece, hold_ns in self.watch.cut(data):
                self._send_segments(piece, hold_ns)

    def _send_segments(self, data: bytes, hold_ns: int) -> None:
        random = self._rng.random
        if len(data) > 1 and random() < self.network.weather.split_rate:
            cut = 1 + int(random() * (len(data) - 1))
            self._enqueue(data[:cut], hold_ns)
            data = data[cut:]
            hold_ns = 0
        self._enqueue(data, hold_ns)

    def release(self) -> None:
        """End all holds on bytes that were sent."""
        now_ns = self.network.world.now_ns
        self._arrivals = deque((min(due_ns, now_ns), what) for due_ns, what in self._arrivals)
        self._last_due_ns = min(self._last_due_ns, now_ns)
        if self._arrivals:
            self._schedule(now_ns)

    def finish(self, how: str) -> None:
        """Send FIN or RST after all bytes."""
        if not self.closed:
            self.closed = True
            self._enqueue(how, 0)

    def reset(self) -> None:
        """Send RST after FIN: the sink's process closed its socket before it had read all bytes."""
        self._enqueue(RST, 0)

    def break_off(self) -> None:
        """Drop everything on the wire."""
        self.closed = True
        self._arrivals.clear()

    def _enqueue(self, what: bytes | str, hold_ns: int) -> None:
        network = self.network
        due_ns = network.world.now_ns + network.latency_ns(self._rng, self.source.host, self.sink.host) + hold_ns
        self._last_due_ns = due_ns = max(due_ns, self._last_due_ns)  # never before earlier segments
        self._arrivals.append((due_ns, what))
        if not self._scheduled:
            self._schedule(due_ns)

    def _schedule(self, due_ns: int) -> None:
        self._scheduled = True
        self._turn += 1
        self.network.world.at(due_ns, self._arrive, self._turn)

    def _arrive(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._scheduled = False
        arrivals = self._arrivals
        if not arrivals:
            return
        network = self.network
        there, back = self.source.host, self.sink.host
        if not back.machine_up or not network.is_open(there, back):
            self._stall(lost=True)
            return
        if self.sink.gone and arrivals[0][1] is not RST and not network.is_open(back, there):
            self._stall(lost=True)
            return
        _, what = arrivals.popleft()
        if self.sink.gone:
            self._refused(what)
            return
        self._deliver(what)
        if not network.is_open(back, there):  # it has arrived, but its acknowledgement is lost
            self._stall(lost=False)
        elif self._stalled_since_ns is not None:
            self._stalled_since_ns = None
            self._retransmit_ns = RETRANSMIT_FIRST_NS
        if arrivals and not self._scheduled:
            self._schedule(max(arrivals[0][0], network.world.now_ns))

    def _deliver(self, what: bytes | str) -> None:
        if isinstance(what, str):
            self.network.world.mark(self.sink.number, 1 if what is FIN else 2)
            self.sink.received_end(what)
        else:
            self.network.world.mark(self.sink.number, crc32(what))
            self.sink.received(what)

    def _refused(self, what: bytes | str) -> None:
        """The sink's socket is gone: its kernel answers with RST."""
        self._arrivals.clear()
        if what is not RST:
            world, source = self.network.world, self.source
            world.after(self.network.latency_ns(self._rng, self.sink.host, source.host), source.received_reset)

    def _stall(self, *, lost: bool) -> None:
        """No acknowledgement arrives: send again later, or give up."""
        world = self.network.world
        if self._stalled_since_ns is None:
            self._stalled_since_ns = world.now_ns
        if world.now_ns - self._stalled_since_ns > self.network.weather.give_up_ns:
            self.break_off()
            world.count("came/connections timed out")
            self.source.timed_out(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            return
        if lost:
            self._schedule(world.now_ns + self._retransmit_ns)
            self._retransmit_ns = min(self._retransmit_ns * 2, RETRANSMIT_MOST_NS)
        else:
            world.after(self._retransmit_ns, self._check_acknowledged, self._stalled_since_ns)

    def _check_acknowledged(self, since_ns: int) -> None:
        if self._stalled_since_ns != since_ns or self._scheduled or self.source.gone:
            return
        if self.network.is_open(self.sink.host, self.source.host):
            self._stalled_since_ns = None
            self._retransmit_ns = RETRANSMIT_FIRST_NS
        else:
            self._stall(lost=False)

    def was_read(self, count: int) -> None:
        """The sink's process has read `count` bytes: the source has room again after one latency."""
        self.on_wire -= count
        if self.source.waits_for_room:
            network = self.network
            delay_ns = network.latency_ns(self._rng, self.sink.host, self.source.host)
            network.world.after(delay_ns, self.source.room_again)
