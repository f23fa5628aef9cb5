"""EDGE: offers the console's page while a demo runs: `semel console` as a child process, if its extra is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from semel_protocol.extras import install_command

from demo.brokers import Print
from demo.client_settings import VARIABLE

STOP_S = 5


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("starlette", "uvicorn"))


class ConsolePage:
    """Serves the page from `open` to `close`. wanted: None if its extra is installed. Raises SystemExit without it.

    Its first look at the cluster is that of a browser: until one comes, it asks the brokers nothing.
    """

    def __init__(self, wanted: bool | None, log: Path) -> None:
        if wanted and not is_installed():
            raise SystemExit(f"the console's packages are missing: {install_command('console')}")
        self._is_wanted = is_installed() if wanted is None else wanted
        self._log = log
        self._process: Process | None = None
        self._saying: asyncio.Task[None] | None = None

    def open(self, address: str, say: Print, topic: str) -> None:
        """Start it in the background; `say` gets the line with its address."""
        if self._is_wanted:
            self._saying = asyncio.create_task(self._open(address, say, topic))

    async def _open(self, address: str, say: Print, topic: str) -> None:
        command = ["-m", "semel", "console", "-b", address, "--port", "0", "--until-input-ends"]
        if file := os.environ.get(VARIABLE):
            command += ["--config-file", file]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=PIPE, stdout=PIPE, stderr=log
            )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().strip()
        if line:
            say(f"the console's page shows the run while it happens: Timeline, {topic}\n{line.removeprefix('Open ')}")
        else:
            say(f"the console did not start; see {self._log}")

    async def close(self) -> None:
        """End it, within `STOP_S`."""
        if self._saying is None:
            return
        self._saying.cancel()
        await asyncio.gather(self._saying, return_exceptions=True)
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
