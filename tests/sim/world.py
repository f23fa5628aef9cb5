"""A deterministic world: hosts, virtual time and one seeded scheduler. The seed decides everything that happens.

    world = World(seed=7)
    host = world.host("client-1")
    host.boot(main)                      # `async def main(host)` is the process
    world.run(until_ns=30 * NS)
    assert not world.failures
    world.close()

The world uses no real clock, socket, file or thread. Time advances only when no host has anything to run.
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
from sim.network import SimNetwork

__all__ = ["NS", "SimWorld", "StuckHost", "WorldFailure"]

STEPS_PER_INSTANT_MAX = 100_000
STEPS_PER_TURN_MAX = 10_000
FAILURES_MAX = 100
_DIGEST_CHUNK = 4096


class WorldFailure(msgspec.Struct, frozen=True):
    """An event that no fault explains: an unexpected exception, or an error in a log. One failure fails the run."""

    at_ns: int
    host: str
    what: str
    details: str = ""

    def __str__(self) -> str:
        return f"{self.at_ns / NS:.6f} {self.host}: {self.what}" + (f"\n{self.details}" if self.details else "")


class StuckHost(Exception):  # noqa: N818 (the name says the state)
    """A host runs without end and never waits, so that virtual time cannot advance."""


class SimWorld:
    """`now_ns`: nanoseconds since the start of the world. `failures`: see `WorldFailure`.

    `listener`, if given, is called with each event as `(now_ns, host, text)`. It must not change the run.
    """

    def __init__(self, seed: int | str, listener: Callable[[int, str, str], None] | None = None) -> None:
        self.seed = seed
        self.now_ns = 0
        self.hosts: dict[str, Host] = {}
        self.failures: list[WorldFailure] = []
        self.runnable: list[SimLoop] = []
        self.steps = 0
        self.network = SimNetwork(self)
        self._listener = listener
        self._choice = self.random("schedule").random
        self._timers: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = 0
        self._kept_until_close: list[object] = []
        self.tally: dict[str, int] = {}
        """Counts of events, by name (`coverage`)."""
        self._is_over = False
        self._hash = blake2b(digest_size=16)
        self._marks: list[int] = []
        gc.freeze()  # older objects are not of this world: collections in `close` skip them

    def random(self, *names: object) -> Random:
        """A separate random source for these names. Its draws do not depend on the draws from other sources."""
        return Random("/".join(map(str, (self.seed, *names))))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def host(self, name: str) -> Host:
        """Add a machine: switched on, with an empty disk and no process."""
        assert name not in self.hosts, f"there is a host {name} already"
        host = self.hosts[name] = Host(self, name)
        return host

    # Time

    @property
    def now_ms(self) -> int:
        """Milliseconds since the start of the world."""
        return self.now_ns // 1_000_000

    def at(self, due_ns: int, function: Callable[..., object], *args: Any) -> None:
        """Call `function` at time `due_ns`, outside of any host."""
        self._numbers += 1
        heappush(self._timers, (due_ns, self._numbers, function, args))

    def after(self, delay_ns: int, function: Callable[..., object], *args: Any) -> None:
        self._numbers += 1
        heappush(self._timers, (self.now_ns + delay_ns, self._numbers, function, args))

    def run(self, until_ns: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run until virtual time `until_ns`, or until `stop()` is true; True in the second case.

        `stop` is called each time before virtual time advances. Raises StuckHost.
        """
        timers = self._timers
        busy_steps = self.steps
        while True:
            while self.runnable:
                self._run_one()
                if self.steps - busy_steps > STEPS_PER_INSTANT_MAX:
                    raise StuckHost(f"{self.steps - busy_steps} steps at {self.now_ns / NS:.6f} s without an end")
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
        """Run one turn of one runnable loop: the callbacks that are ready when the turn begins, in order.

        If no other loop has anything to run, this loop runs further turns.
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
        loop.turns += 1
        loop.queued = True  # call_soon need not add it to `runnable` during the turn
        steps = 0
        events._set_running_loop(loop)
        try:
            turn = len(ready)
            while turn:
                handle = ready.popleft()
                steps += 1
                turn -= 1
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        handle.failed(error)
                    if loop.dead or loop.paused:
                        break  # type: ignore[unreachable]  # the callback may have ended or paused its own process
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

    # Events

    def mark(self, *numbers: int) -> None:
        """Add these numbers (of up to 63 bits) and the time to the digest."""
        self._marks.append(self.now_ns)
        self._marks.extend(numbers)
        if len(self._marks) > _DIGEST_CHUNK:
            self._hash_marks()

    def note(self, host: str, text: str) -> None:
        """Add an event to the digest and the transcript. `text` must be the same in every run of the seed."""
        self._marks.append(self.now_ns)
        self._hash_marks()
        self._hash.update(f"{host}:{text}\n".encode())
        if self._listener is not None:
            self._listener(self.now_ns, host, text)

    @property
    def is_listened_to(self) -> bool:
        """Whether there is a listener. Without one, texts that are not part of the digest need not be made."""
        return self._listener is not None

    def tell(self, host: str, text: str) -> None:
        """Add an event to the transcript only."""
        if self._listener is not None:
            self._listener(self.now_ns, host, text)

    def count(self, what: str, by: int = 1) -> None:
        """Count an event for the statistics over many runs. It is not part of the digest."""
        self.tally[what] = self.tally.get(what, 0) + by

    def fail(self, host: str, what: str, error: BaseException | None = None) -> None:
        """Record a failure. The run continues, so that it can show more."""
        if len(self.failures) >= FAILURES_MAX:
            return
        details = "".join(traceback.format_exception(error)) if error is not None else ""
        self.failures.append(WorldFailure(self.now_ns, host, what if error is None else f"{what}: {error!r}", details))
        self.tell(host, f"FAILURE {what} {details}")

    def digest(self) -> str:
        """A hash of all events up to now, or up to `close`. Equal runs have equal digests."""
        if not self._is_over:
            self._hash_marks()
        return self._hash.hexdigest()

    def _hash_marks(self) -> None:
        self._hash.update(array("q", self._marks).tobytes())
        self._marks.clear()

    # The end

    def keep_until_close(self, remains: object) -> None:
        """Keep objects of an ended process until `close`: freed now, its coroutines would run `finally` blocks."""
        self._kept_until_close.append(remains)

    def close(self) -> None:
        """Kill all processes, record exceptions that no code has retrieved, and free all memory. Call it last."""
        gc.collect()  # tasks whose exception was not retrieved report it: a failure
        self._hash_marks()
        self._is_over = True
        hook = sys.unraisablehook
        sys.unraisablehook = lambda _: None  # coroutines of dead processes that cannot be closed
        try:
            for host in self.hosts.values():
                host.kill()
            self.hosts.clear()
            self.runnable.clear()
            self._timers.clear()
            self.network.close()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # tasks of dead processes that never started
                self._kept_until_close.clear()
                _unwind()
                gc.collect()
        finally:
            sys.unraisablehook = hook
            gc.unfreeze()


def _unwind() -> None:
    """Close the coroutines of dead processes.

    They refer to each other, also through structs that the garbage collector does not track. One request that waits
    without end would keep a whole broker in memory.
    """
    for remains in gc.get_objects():
        if isinstance(remains, CoroutineType):
            with suppress(BaseException):
                remains.close()
