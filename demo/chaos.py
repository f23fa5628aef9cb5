"""Kills brokers and workers at random moments, and pauses one worker so that it becomes a zombie."""

from __future__ import annotations

import asyncio
import random

from demo.brokers import DemoBrokers, Print
from demo.processes import Worker

PAUSE_S = (0.2, 1.2)
ZOMBIE_TIMEOUT_S = 60


class Chaos:
    """Kills brokers and workers at random. `kills` counts all of them."""

    def __init__(self, rng: random.Random, brokers: DemoBrokers, workers: list[Worker], say: Print) -> None:
        self._rng, self._brokers, self._workers, self._say = rng, brokers, workers, say

    @property
    def kills(self) -> int:
        return self._brokers.kills + sum(worker.kills for worker in self._workers)

    async def run(self, kills: int) -> None:
        """Kill processes until the count is `kills`; each is restarted at once or after a short time."""
        while self.kills < kills:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))  # the seed determines the moment
            if self._rng.random() < 0.5:
                await self._brokers.kill_one(self._rng, self._announce, self._say)
            else:
                await self._kill(self._rng.choice(self._workers))
        await self._brokers.wait_until_recovered()

    def _announce(self, name: str) -> None:
        self._say(f"[red]SIGKILL[/] {self.kills:2}: {name}")

    async def _kill(self, worker: Worker) -> None:
        await worker.kill()
        self._announce(worker.transactional_id)
        await worker.start()


async def make_zombie(worker: Worker, replacement: Worker, say: Print) -> None:
    """Pause `worker` during its work and start `replacement`. Resumes `worker` when the replacement works, and waits
    until it is fenced.
    """
    async with asyncio.timeout(ZOMBIE_TIMEOUT_S):
        await worker.working.wait()
    worker.pause()
    say(f"[yellow]SIGSTOP[/]:   {worker.transactional_id} is paused; another process takes over its transactional id")
    await replacement.start()
    async with asyncio.timeout(ZOMBIE_TIMEOUT_S):
        await replacement.started.wait()
    worker.resume()
    say(f"[yellow]SIGCONT[/]:   {worker.transactional_id} is resumed and continues its transaction")
    async with asyncio.timeout(ZOMBIE_TIMEOUT_S):
        await worker.ended()
    say(f"fenced:     {worker.fenced or '[red]no[/]'}")
