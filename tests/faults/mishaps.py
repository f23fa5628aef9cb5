"""What goes wrong in a round: each kind of fault of a plan as a method of the same name."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

from faults.crew import Worker
from faults.plan import Fault


class Mishaps:
    """`await do(fault)` returns when the next one may come; `await over()` when all have passed.

    Here is what happens to workers; subclasses have the brokers and the network. `serial`: kinds that the next fault
    waits for. `problems`: what must not happen meanwhile. `counts`: how often each kind has happened. `notes`: what was
    measured.
    """

    serial: tuple[str, ...] = ()

    def __init__(
        self, crew: dict[str, Worker], rng: random.Random, problems: list[str], say: Callable[[str], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []
        self._crew, self._rng = crew, rng
        self._problems, self._say = problems, say
        self._windows: list[asyncio.Task[None]] = []

    async def do(self, fault: Fault) -> None:
        await asyncio.sleep(fault.after_s)
        await self.check()
        self._say(str(fault))
        self.counts[fault.kind] += 1
        doing = getattr(self, fault.kind.replace("-", "_"))(**fault.args)
        if fault.kind in self.serial:
            await doing
        else:
            self._windows.append(asyncio.create_task(doing))

    async def over(self) -> None:
        await asyncio.gather(*self._windows)

    async def check(self) -> None:
        """Whoever has ended without our doing is a problem, and is started again."""

    # The workers

    async def kill_worker(self, whom: str) -> None:
        self._crew[whom].kill()

    async def pause_worker(self, whom: str, for_s: float, replaced: bool) -> None:
        worker = self._crew[whom]
        asleep = worker.present
        asleep.pause()
        await asyncio.sleep(for_s / 2)
        if replaced and worker.present is asleep:
            await worker.start()
        await asyncio.sleep(for_s / 2)
        asleep.resume()
        if replaced:  # a zombie: it goes on for a moment, and is told to end if nothing else ends it
            await asyncio.sleep(1.0)
            asleep.dismiss()
