"""Who is killed when: kills at random moments until there were enough, and one worker that becomes a zombie."""

from __future__ import annotations

import asyncio
import random

from demo.brokers import Brokers, Tell
from demo.processes import Worker

PAUSE_S = (0.2, 1.2)
ZOMBIE_TIMEOUT_S = 60


class Chaos:
    """Kills brokers and workers in turn by chance. `kills` counts all of them."""

    def __init__(self, rng: random.Random, brokers: Brokers, workers: list[Worker], say: Tell) -> None:
        self._rng, self._brokers, self._workers, self._say = rng, brokers, workers, say

    @property
    def kills(self) -> int:
        return self._brokers.kills + sum(worker.kills for worker in self._workers)

    async def run(self, kills: int) -> None:
        """Kills until `kills` have died, each started again at once or after a moment."""
        while self.kills < kills:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))  # the moment is what the seed draws
            if self._rng.random() < 0.5:
                await self._brokers.strike(self._rng, self._tell, self._say)
            else:
                await self._kill(self._rng.choice(self._workers))
        await self._brokers.settled()

    def _tell(self, who: str) -> None:
        self._say(f"[red]SIGKILL[/] {self.kills:2}: {who}")

    async def _kill(self, worker: Worker) -> None:
        await worker.kill()
        self._tell(worker.transactional_id)
        await worker.start()


async def make_zombie(worker: Worker, replacement: Worker, say: Tell) -> None:
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
