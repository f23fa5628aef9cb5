"""A client of a scenario in a process that can be paused, continued and killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import msgspec

from faults.actor import ActorOptions, StepOutcome

TESTS = Path(__file__).parents[1]


class ClientEnded(Exception):  # noqa: N818 (it is an outcome of a scenario, not a bug)
    """The process has ended. A client does not end by itself."""


class ClientProcess:
    """A process of `python -m faults.actor`: sends it one command at a time, and receives the outcome."""

    def __init__(self, settings: ActorOptions, log: Path) -> None:
        self._settings, self._log = settings, log
        self._process: asyncio.subprocess.Process | None = None
        self.running: asyncio.Task[StepOutcome] | None = None

    async def start(self) -> StepOutcome:
        command = [sys.executable, "-m", "faults.actor", msgspec.json.encode(self._settings).decode()]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )  # fmt: skip
        return await self._outcome()

    async def do(self, verb: str, words: tuple[str, ...]) -> StepOutcome:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, "words": words}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._outcome()

    async def _outcome(self) -> StepOutcome:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise ClientEnded(f"the process of {self._settings.name} has ended; see {self._log}")
        return msgspec.json.decode(line, type=StepOutcome)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def end(self) -> None:
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
