"""A deterministic world: hosts, virtual time, one seeded scheduler; everything that happens follows from the seed.

    world = World(seed=7)
    host = world.host("client-1")
    host.boot(main)                      # `async def main(host)` is the process
    world.run(until_ns=30 * NS)
    assert not world.failures
    world.close()

Nothing outside is touched: no clock, no socket, no file, no thread. Time only moves when no host has anything to run.
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from array import array
from asyncio import events
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from types import CoroutineType
from typing import Any

import msgspec

from sim.host import Host
from sim.loop import NS, SimLoop
from sim.network import Network

__all__ = ["NS", "Failure", "Stuck", "World"]

STEPS_PER_INSTANT_MAX = 100_000
STEPS_PER_TURN_MAX = 10_000
FAILURES_MAX = 100
_DIGEST_CHUNK = 4096


class Failure(msgspec.Struct, frozen=True):
    """Something that no fault explains: an unexpected exception, an error in a log. Any one fails the run."""

    at_ns: int
    host: str
    what: str
    details: str = ""

    def __str__(self) -> str:
        return f"{self.at_ns / NS:.6f} {self.host}: {self.what}" + (f"\n{self.details}" if self.details else "")


class Stuck(Exception):  # noqa: N818 (named for what it tells)
    """Some host keeps itself busy without ever waiting: time cannot go on."""


class World:
    """`now_ns`: nanoseconds since the beginning. `failures`: see `Failure`.

    `listener`, when given, hears every event as `(now_ns, host, text)`; what it does must not change the run.
    """

    def __init__(self, seed: int | str, listener: Callable[[int, str, str], None] | None = None) -> None:
        self.seed = seed
        self.now_ns = 0
        self.hosts: dict[str, Host] = {}
        self.failures: list[Failure] = []
        self.runnable: list[SimLoop] = []
        self.steps = 0
        self.network = Network(self)
        self._listener = listener
        self._choice = self.random("schedule").random
        self._timers: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = 0
        self._kept_until_close: list[object] = []
        self.tally: dict[str, int] = {}
        """How often what happened, see `coverage`."""
        self._is_over = False
        self._hash = blake2b(digest_size=16)
        self._marks: list[int] = []
        gc.freeze()  # what was there before is none of ours: `close` has little to look through

    def random(self, *names: object) -> Random:
        """A source of chance of its own, so that what happens in one place does not shift what happens in another."""
        return Random("/".join(map(str, (self.seed, *names))))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def host(self, name: str) -> Host:
        """A new machine, switched on, with an empty disk and no process."""
        assert name not in self.hosts, f"there is a host {name} already"
        host = self.hosts[name] = Host(self, name)
        return host

    # Time

    @property
    def now_ms(self) -> int:
        """Milliseconds since the beginning."""
        return self.now_ns // 1_000_000

    def at(self, due_ns: int, function: Callable[..., object], *args: Any) -> None:
        """Call `function` outside of any host when it is `due_ns`."""
        self._numbers += 1
        heappush(self._timers, (due_ns, self._numbers, function, args))

    def after(self, delay_ns: int, function: Callable[..., object], *args: Any) -> None:
        self._numbers += 1
        heappush(self._timers, (self.now_ns + delay_ns, self._numbers, function, args))

    def run(self, until_ns: int, stop: Callable[[], bool] | None = None) -> bool:
        """Go on until world time `until_ns`, or until `stop()` says so (looked at whenever time moves): then True.

        Raises Stuck.
        """
        timers = self._timers
        busy_steps = self.steps
        while True:
            while self.runnable:
                self._run_one()
                if self.steps - busy_steps > STEPS_PER_INSTANT_MAX:
                    raise Stuck(f"{self.steps - busy_steps} steps at {self.now_ns / NS:.6f} s without an end")
            busy_steps = self.steps
            if stop is not None and stop():
                return True
            if not timers or timers[0][0] > until_ns:
                self.now_ns = max(self.now_ns, until_ns)
                return False
            due_ns = self.now_ns = timers[0][0]
            while timers and timers[0][0] == due_ns:
                _, _, function, args = heappop(timers)
                function(*args)

    def _run_one(self) -> None:
        """One turn of one of the loops that have something to run: what was ready when the turn began, in order.

        While it is the only one, turn after turn.
        """
        runnable = self.runnable
        place = int(self._choice() * len(runnable)) if len(runnable) > 1 else 0
        loop = runnable[place]
        runnable[place] = runnable[-1]
        runnable.pop()
        loop.queued = False
        if loop.dead or loop.paused:
            return
        ready = loop.ready
        loop.queued = True  # it need not be told that there is more
        steps = 0
        events._set_running_loop(loop)
        try:
            turn = len(ready)
            while turn:
                handle = ready.popleft()
                steps += 1
                turn -= 1
                if not handle._cancelled:
                    handle._run()
                    if loop.dead or loop.paused:
                        break  # type: ignore[unreachable]  # what it has just done to itself
                if not turn and not runnable and steps < STEPS_PER_TURN_MAX:
                    turn = len(ready)
        finally:
            events._set_running_loop(None)
        self.steps += steps
        self.mark(loop.number, steps)
        loop.queued = False
        if ready and not (loop.dead or loop.paused):
            loop.queued = True
            runnable.append(loop)

    # What happened

    def mark(self, *numbers: int) -> None:
        """Make these numbers (of up to 63 bits), and the time, part of the digest."""
        self._marks.append(self.now_ns)
        self._marks.extend(numbers)
        if len(self._marks) > _DIGEST_CHUNK:
            self._hash_marks()

    def note(self, host: str, text: str) -> None:
        """An event worth reading: part of the digest and of the transcript. `text` must be the same in every run."""
        self._marks.append(self.now_ns)
        self._hash_marks()
        self._hash.update(f"{host}:{text}\n".encode())
        if self._listener is not None:
            self._listener(self.now_ns, host, text)

    @property
    def is_listened_to(self) -> bool:
        """Whether it is worth while to describe what need not be in the digest."""
        return self._listener is not None

    def tell(self, host: str, text: str) -> None:
        """An event for the transcript only."""
        if self._listener is not None:
            self._listener(self.now_ns, host, text)

    def count(self, what: str, by: int = 1) -> None:
        """Something worth knowing about many runs has happened; no part of the digest."""
        self.tally[what] = self.tally.get(what, 0) + by

    def fail(self, host: str, what: str, error: BaseException | None = None) -> None:
        """Something unexpected: the run fails, and goes on so that more can be seen."""
        if len(self.failures) >= FAILURES_MAX:
            return
        details = "".join(traceback.format_exception(error)) if error is not None else ""
        self.failures.append(Failure(self.now_ns, host, what if error is None else f"{what}: {error!r}", details))
        self.tell(host, f"FAILURE {what} {details}")

    def digest(self) -> str:
        """Stands for everything that has happened so far, until the end: equal for equal runs."""
        if not self._is_over:
            self._hash_marks()
        return self._hash.hexdigest()

    def _hash_marks(self) -> None:
        self._hash.update(array("q", self._marks).tobytes())
        self._marks.clear()

    # The end

    def keep_until_close(self, remains: object) -> None:
        """Keep what belonged to a killed process: its coroutines must not run their `finally` blocks now."""
        self._kept_until_close.append(remains)

    def close(self) -> None:
        """Kill what still runs, note exceptions that nobody looked at, and free all memory. The world is over."""
        gc.collect()  # tasks that failed unseen say so, as failures
        self._hash_marks()
        self._is_over = True
        hook = sys.unraisablehook
        sys.unraisablehook = lambda _: None  # coroutines of the dead, which refuse to be closed
        try:
            for host in self.hosts.values():
                host.kill()
            self.hosts.clear()
            self.runnable.clear()
            self._timers.clear()
            self.network.close()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # tasks of the dead that never began
                self._kept_until_close.clear()
                _unwind()
                gc.collect()
        finally:
            sys.unraisablehook = hook
            gc.unfreeze()


def _unwind() -> None:
    """End the coroutines of the dead. They hold on to each other, also by structs that garbage collection passes over:
    a request that waits for ever would keep a whole broker."""
    for remains in gc.get_objects():
        if isinstance(remains, CoroutineType):
            with suppress(BaseException):
                remains.close()
