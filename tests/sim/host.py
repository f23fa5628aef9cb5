"""One simulated machine and its one process: it boots, dies, loses power, pauses and comes back.

The machine's kernel outlives the process: after `kill`, written data is still on the disk, and peers see the connection
close. After `power_loss` peers see nothing, and the disk has only the synced data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from sim.clock import HostClock
from sim.disk import SimDisk
from sim.loop import NS, ProcessEnded, SimLoop

if TYPE_CHECKING:
    from sim.transport import SimServer, SimTransport
    from sim.world import SimWorld

NS_PER_MS = 1_000_000
Main = Callable[["Host"], Coroutine[Any, Any, None]]


class Host:
    """`loop`: the running process, None if there is none. `ended`: called when a process ends by itself or returns.

    `rng`: random numbers for the process.
    """

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world, self.name = world, name
        rng = world.random("host", name)
        self.clock = HostClock(monotonic_offset_ns=rng.randrange(1, 1_000_000) * NS // 10)
        self.rng = world.random("process", name)
        self.disk = SimDisk(world, name, self.exit, self.stand_still)
        self.disk.clock = self.now_ms
        self.machine_up = True
        self.is_kafka = True
        """Whether the frames sent to this host are Kafka's, so that they can be followed and held."""
        self.incarnation = 0
        self.loop: SimLoop | None = None
        self.main: asyncio.Task[None] | None = None
        self.ended: Callable[[str], None] | None = None
        self.endpoints: dict[SimTransport, None] = {}
        self.listeners: dict[int, SimServer] = {}
        self.connections_dialed = 0

    # For the code on the host

    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970, with skew and jumps."""
        return self.clock.wall_ms(self.world.now_ns)

    def monotonic(self) -> float:
        """The monotonic clock in seconds, with a random start; the event loop's `time()`."""
        return (self.world.now_ns + self.clock.monotonic_offset_ns) / NS

    # Events of the host

    @property
    def is_running(self) -> bool:
        return self.loop is not None

    def boot(self, main: Main) -> None:
        """Start a process. It ends when `main(host)` returns; an exception from it fails the run."""
        assert self.loop is None, f"a process already runs on {self.name}"
        self.incarnation += 1
        self.machine_up = self.disk.in_use = True
        self.loop = SimLoop(self.world, self)  # type: ignore[abstract]  # the other methods raise NotImplementedError
        self.world.note(self.name, f"boot {self.incarnation}")
        self.main = self.loop.create_task(main(self), name=f"{self.name}/main")
        self.main.add_done_callback(self._returned)

    def kill(self) -> None:
        """SIGKILL: the process runs no cleanup. The kernel sends the bytes that it has and closes the connections."""
        if self._stop("killed"):
            self.disk.kill()

    def power_loss(self) -> None:
        """The machine loses power: peers see nothing, and data that was not synced may be lost."""
        self._stop("power loss", silently=True)
        self.machine_up = False
        self.disk.power_loss()

    def exit(self, reason: str, *, dark: bool = False) -> NoReturn:
        """End the process at once, in the middle of its code, for example after a failed write.

        With `dark` the machine loses power. Only code of the process may call it.
        """
        if self._stop(reason, silently=dark):
            if dark:
                self.machine_up = False
                self.disk.power_loss()
            else:
                self.disk.kill()
            if self.ended is not None:
                self.ended(reason)
        raise ProcessEnded(reason)

    def end_before_change(self, changes: int, *, dark: bool) -> None:
        """End the process, or with `dark` the power, just before the disk change after `changes` more changes."""
        self.disk.fuse = changes
        self.disk.burnt_down = lambda: self.exit(
            "power loss amid changes" if dark else "killed amid changes", dark=dark
        )

    def pause(self) -> None:
        """SIGSTOP: the process pauses; its kernel continues to receive."""
        if self.loop is not None and not self.loop.stopped:
            self.loop.stopped = self.loop.paused = True
            self.world.note(self.name, "paused")

    def resume(self) -> None:
        """SIGCONT."""
        loop = self.loop
        if loop is not None and loop.stopped:
            loop.stopped = False
            self.world.note(self.name, "resumed")
            self._go_on(loop)

    def stand_still(self, for_ms: float) -> None:
        """The process makes a blocking call: after its current callback it runs nothing for so long."""
        loop = self.loop
        if loop is not None:
            loop.busy_until_ns = max(loop.busy_until_ns, self.world.now_ns) + int(for_ms * NS_PER_MS) + 1
            loop.paused = True
            self.world.at(loop.busy_until_ns, self._go_on, loop)

    def finish_waiting(self) -> None:
        """End the process's blocking call now."""
        if self.loop is not None and self.loop.busy_until_ns > self.world.now_ns:
            self.loop.busy_until_ns = self.world.now_ns
            self._go_on(self.loop)

    def _go_on(self, loop: SimLoop) -> None:
        if loop is not self.loop or loop.stopped or loop.busy_until_ns > self.world.now_ns:
            return
        loop.paused = False
        if loop.ready and not loop.queued:
            loop.queued = True
            self.world.runnable.append(loop)

    def jump_clock(self, by_ms: int) -> None:
        """Set the wall clock forwards or back."""
        self.clock.skew_ms += by_ms
        self.world.note(self.name, f"clock set by {by_ms} ms")

    def _stop(self, how: str, *, silently: bool = False) -> bool:
        loop, self.loop = self.loop, None
        if loop is None:
            return False
        self.world.note(self.name, how)
        loop.dead = True
        self.disk.in_use = False
        # Kept, and never run again: freed coroutines would run their `finally` blocks as if the process still lived.
        self.world.keep_until_close((loop, self.main, asyncio.all_tasks(loop), list(loop.ready)))
        loop.ready.clear()
        self.main = None
        self.listeners.clear()
        endpoints, self.endpoints = list(self.endpoints), {}
        for endpoint in endpoints:
            endpoint.process_ended(silently=silently)
        return True

    def _returned(self, main: asyncio.Task[None]) -> None:
        if main is not self.main:
            return
        error = None if main.cancelled() else main.exception()
        if error is not None:
            self.world.fail(self.name, "the process ended", error)
        self._stop("ended")
        self.disk.kill()
        if self.ended is not None:
            self.ended("returned")
