"""Watches the turns of a broker's loop that wait for its disk.

While the loop waits, no request of any client is answered, also if it does not need the disk. So the disk may hold one
turn for at most `TURN_MS_MAX`. A turn here is one callback: the waits of several in a row show as waits of a client.
Only the start and the stop of the broker are not watched. One small sync (decision 10) may turn out slow: the broker
cannot know before. It is counted only if another one was slow just before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec
from semel_storage.disk.sync_pace import PAUSE_S, SLOW_S

from sim.broker import SimBroker
from sim.checkers.anomaly import Anomaly, few

CHECKER = "loop-waits-for-disk"
TURN_MS_MAX = 50.0
FOUND_MAX = 10
NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000
PACKAGES = ("semel_storage", "semel_broker")
DISK = ("os_disk.", "memory_disk.")
STACK_SHOWN = 6
STILL_WAITS: dict[str, str] = {}
"""Functions in which the loop still waits, with the reason. Remove a function when it no longer waits."""


class Turn(msgspec.Struct):
    """One turn of the loop: the time that the disk has held it, in total, and in each function that is not in
    STILL_WAITS.
    """

    number: int
    began_ns: int
    ms: float = 0.0
    unknown: dict[str, float] = {}
    """The stack of functions, the innermost first -> ms."""


class LoopStalls:
    """`known`: the milliseconds in each function of `STILL_WAITS`. `turns`: the number of turns that waited.

    `excused_until_ns`: the end of the last wait that is not counted, for a client whose request had to wait with it.
    """

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self.name = broker.host.name
        self.excused_until_ns = 0
        self._slow_small_ns: int | None = None
        self._turn: Turn | None = None
        self._found: list[Anomaly] = []
        self.known: dict[str, float] = {}
        self.turns = 0
        broker.host.disk.stalls = self

    def note(self, for_ms: float, *, is_small: bool) -> None:
        """The disk holds the loop for this time. `is_small`: by a small sync of decision 10."""
        loop, world = self._broker.host.loop, self._broker.host.world
        if loop is None:
            return
        ends_ns = max(loop.busy_until_ns, world.now_ns) + int(for_ms * NS_PER_MS)
        if not self._broker.is_in_service:
            self.excused_until_ns = ends_ns
            return
        if is_small and self._is_excused(world.now_ns, for_ms):
            self.excused_until_ns = ends_ns
            return
        if self._turn is None or self._turn.number != loop.turns:
            self._end_turn()
            self.turns += 1
            self._turn = Turn(loop.turns, world.now_ns)
        stack = stack_of_broker()
        site = next((function for function in stack if function in STILL_WAITS), None)
        if site is not None:
            self.known[site] = self.known.get(site, 0.0) + for_ms
            self.excused_until_ns = ends_ns
            return
        name = " < ".join(stack[:STACK_SHOWN])
        self._turn.ms += for_ms
        self._turn.unknown[name] = self._turn.unknown.get(name, 0.0) + for_ms

    def _is_excused(self, now_ns: int, for_ms: float) -> bool:
        """Whether the broker could not know that this small sync is slow: no other one was slow just before."""
        if for_ms < SLOW_S * 1_000:
            return True
        before_ns, self._slow_small_ns = self._slow_small_ns, now_ns
        return before_ns is None or now_ns >= before_ns + PAUSE_S * NS_PER_S

    def found(self) -> list[Anomaly]:
        """The turns that waited too long."""
        self._end_turn()
        return self._found

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None or turn.ms <= TURN_MS_MAX or len(self._found) >= FOUND_MAX:
            return
        where = few(f"{ms:.0f} ms in {name}" for name, ms in sorted(turn.unknown.items(), key=lambda row: -row[1]))
        host = self._broker.host
        self._found.append(
            Anomaly(CHECKER, f"{turn.began_ns / 1e9:.6f} the loop of {host.name} waited {turn.ms:.0f} ms: {where}")
        )
        host.world.tell("checker", str(self._found[-1]))


def stack_of_broker() -> list[str]:
    """The functions of the broker and its storage that run now, the innermost first, without those of the disk."""
    return [name for name in functions(sys._getframe(1)) if not name.startswith(DISK)]


def functions(frame: FrameType | None) -> Iterator[str]:
    """The functions of the broker and its storage from this frame on, the innermost first, as `file.Class.function`."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if any(package in path.parts for package in PACKAGES):
            yield f"{path.stem}.{frame.f_code.co_qualname}"
        frame = frame.f_back
