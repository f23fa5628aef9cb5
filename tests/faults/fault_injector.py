"""Injects the faults of a round: each kind of fault in a plan is a method of the same name."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

from faults.plan import PlannedFault
from faults.worker_processes import WorkerProcesses


class FaultInjector:
    """`inject` returns when the next fault may begin, `finish` when all faults have ended.

    This class has the faults of workers; subclasses have those of brokers and the network. `serial`: kinds of faults
    that end before the next one begins. `problems`: the list for unexpected events. `counts`: injected faults by kind.
    `notes`: measurements.
    """

    serial: tuple[str, ...] = ()

    def __init__(
        self, workers: dict[str, WorkerProcesses], rng: random.Random, problems: list[str], say: Callable[[str], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []
        self._workers, self._rng = workers, rng
        self._problems, self._say = problems, say
        self._windows: list[asyncio.Task[None]] = []

    async def inject(self, fault: PlannedFault) -> None:
        await asyncio.sleep(fault.after_s)
        await self.check()
        self._say(str(fault))
        self.counts[fault.kind] += 1
        doing = getattr(self, fault.kind.replace("-", "_"))(**fault.args)
        if fault.kind in self.serial:
            await doing
        else:
            self._windows.append(asyncio.create_task(doing))

    async def finish(self) -> None:
        await asyncio.gather(*self._windows)

    async def check(self) -> None:
        """Note a problem for each broker that has ended by itself, and make sure that it runs again."""

    # --- workers ---

    async def kill_worker(self, whom: str) -> None:
        self._workers[whom].kill()

    async def pause_worker(self, whom: str, for_s: float, replaced: bool) -> None:
        worker = self._workers[whom]
        asleep = worker.present
        asleep.pause()
        await asyncio.sleep(for_s / 2)
        if replaced and worker.present is asleep:
            await worker.start()
        await asyncio.sleep(for_s / 2)
        asleep.resume()
        if replaced:  # a zombie: it continues for a moment, and is stopped if it was not fenced
            await asyncio.sleep(1.0)
            asleep.dismiss()
