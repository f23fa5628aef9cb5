"""EDGE: runs one server as a child process that can be killed, stopped and restarted, with its output in a file."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

READY_TIMEOUT_S = 180
STOP_TIMEOUT_S = 90


class ServerError(RuntimeError):
    """A server that did not become ready; the message names its log."""


class ServerProcess:
    """A server process. `command` starts it; `is_ready` gets each line of its output until it returns True.

    `died`: how often it ended unexpectedly.
    """

    def __init__(self, command: Callable[[], list[str]], log: Path, is_ready: Callable[[str], bool]) -> None:
        self.log = log
        self.died = 0
        self._command, self._is_ready = command, is_ready
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._is_asked_to_end = False

    async def start(self) -> None:
        """Start the server unless it runs; return when it is ready. Raises ServerError."""
        if self._process is not None and self._process.returncode is None:
            return
        self._is_asked_to_end = False
        self._process = await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            limit=1 << 20,
        )
        ready = asyncio.Event()
        self._reader = asyncio.create_task(self._read(self._process, ready))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait([waiting, self._reader], timeout=READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not ready.is_set():
            await self.kill()
            raise ServerError(f"{self._command()[0]} did not become ready; see {self.log}")

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        with self.log.open("ab") as log:
            async for line in process.stdout:
                log.write(line)
                log.flush()
                if not ready.is_set() and self._is_ready(line.decode(errors="replace")):
                    ready.set()
        await process.wait()
        self.died += not self._is_asked_to_end

    async def ended(self) -> int:
        """Wait until the server ends by itself; return its exit status."""
        assert self._process is not None
        assert self._reader is not None
        await self._reader
        return await self._process.wait()

    async def kill(self) -> None:
        """Kill the server with SIGKILL; return when it has ended."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Stop the server with SIGTERM, and with SIGKILL if it does not end."""
        try:
            await asyncio.wait_for(self._end(signal.SIGTERM), STOP_TIMEOUT_S)
        except TimeoutError:
            await self.kill()

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._is_asked_to_end = True
            self._process.send_signal(number)
        await self._process.wait()
        if self._reader is not None:
            await asyncio.wait((self._reader,))
            self._reader.result()
