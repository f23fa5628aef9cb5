"""Who is killed when: kills at random moments until there were enough, and one worker that becomes a zombie."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from demo.processes import Broker, Worker

DOWN_S = 0.3
PAUSE_S = (0.2, 1.2)
ZOMBIE_TIMEOUT_S = 60

Say = Callable[[str], None]


class Chaos:
    """Kills the broker and the workers in turn by chance. `kills` counts all of them."""

    def __init__(self, rng: random.Random, broker: Broker, workers: list[Worker], say: Say) -> None:
        self._rng, self._broker, self._workers, self._say = rng, broker, workers, say

    @property
    def kills(self) -> int:
        return self._broker.kills + sum(worker.kills for worker in self._workers)

    async def run(self, kills: int) -> None:
        """Kills until `kills` have died, each started again at once or after a moment."""
        while self.kills < kills:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))  # the moment is what the seed draws
            if self._rng.random() < 0.5:
                await self._kill_broker()
            else:
                await self._kill(self._rng.choice(self._workers))

    async def _kill_broker(self) -> None:
        await self._broker.kill()
        self._say(f"[red]SIGKILL[/] {self.kills:2}: broker")
        await asyncio.sleep(DOWN_S)  # how long it stays down
        started = time.monotonic()
        await self._broker.start()
        self._say(f"            broker back after {time.monotonic() - started:.2f} s on the same data")

    async def _kill(self, worker: Worker) -> None:
        await worker.kill()
        self._say(f"[red]SIGKILL[/] {self.kills:2}: {worker.transactional_id}")
        await worker.start()


async def make_zombie(worker: Worker, replacement: Worker, say: Say) -> None:
    """Stops `worker` amid its work; when its replacement has done some, wakes it and waits until it is fenced."""
    async with asyncio.timeout(ZOMBIE_TIMEOUT_S):
        await worker.working.wait()
    worker.pause()
    say(f"[yellow]SIGSTOP[/]:   {worker.transactional_id} sleeps; another process takes over its transactional id")
    await replacement.start()
    async with asyncio.timeout(ZOMBIE_TIMEOUT_S):
        await replacement.started.wait()
    worker.wake()
    say(f"[yellow]SIGCONT[/]:   {worker.transactional_id} wakes up and goes on as if nothing had happened")
    async with asyncio.timeout(ZOMBIE_TIMEOUT_S):
        await worker.ended()
    say(f"fenced:     {worker.fenced or '[red]no[/]'}")
