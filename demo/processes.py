"""The child processes of the demo: one broker that can be killed, and the workers, which report their progress."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path

from rich.console import Console

from demo.brokers import Print

READY_TIMEOUT_S = 20
DOWN_S = 0.3
STOP_S = 15


class DemoBroker:
    """`semel serve` as a child process; it keeps its port and its data over restarts."""

    replicas = 1

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self.kills = 0
        self._changing = asyncio.Lock()
        """Held from a kill until the broker is ready again, so that the next kill finds a running broker."""
        self._log = directory.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def data_dir(self) -> Path:
        return self.directory

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> str:
        await self._begin()
        return f"broker on {self.address}, data in {self.directory}"

    async def _begin(self) -> None:
        command = ["--data-dir", str(self.directory), "--port", str(self.port), "--log-format", "json"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "semel_broker",
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        ready = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(self._process, ready))
        async with asyncio.timeout(READY_TIMEOUT_S):
            self.port = await ready

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Future[int]) -> None:
        assert process.stdout is not None
        with self._log.open("ab") as log:
            async for line in process.stdout:
                log.write(line)
                log.flush()
                if not ready.done() and b'"ready"' in line:
                    ready.set_result(int(json.loads(line)["port"]))
        if not ready.done():
            ready.set_exception(RuntimeError(f"the broker did not start; see {self._log}"))

    async def kill_one(self, rng: random.Random, announce: Print, say: Print) -> None:
        """Kill the broker with SIGKILL, without a clean shutdown or sync. Returns when it is ready again."""
        async with self._changing:
            self.kills += 1
            await self._end(signal.SIGKILL)
            announce("broker")
            await asyncio.sleep(DOWN_S)  # the downtime
            started = time.monotonic()
            await self._begin()
            say(f"            broker ready after {time.monotonic() - started:.2f} s on the same data")

    async def wait_until_recovered(self) -> None:
        async with self._changing:
            pass

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    def is_sound(self, console: Console, topics: list[str]) -> bool:
        """Return True: the demo fails earlier if the broker ends by itself, because it is not restarted."""
        return True

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()
        if self._reader is not None:
            await self._reader


class Worker:
    """A `demo.worker` process with one transactional id, started again after each kill.

    `done`: records of finished transactions. `working` is set when the first transaction is finished.
    """

    def __init__(self, bootstrap: str, group: str, transactional_id: str, directory: Path) -> None:
        self.transactional_id = transactional_id
        self._command = ["--bootstrap", bootstrap, "--group", group, "--transactional-id", transactional_id]
        self._command += ["--log", str(directory / f"{transactional_id}.log")]
        self.kills = 0
        self.done = 0
        self.aborted = 0
        self.fenced = ""
        self.started = asyncio.Event()
        self.working = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def failed(self) -> bool:
        return self._process is not None and self._process.returncode not in (None, 0)

    async def start(self) -> None:
        self.started.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "demo.worker", *self._command, stdout=asyncio.subprocess.PIPE
        )
        self._reader = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        before = self.done
        async for line in process.stdout:
            facts = json.loads(line)
            if "started" in facts:
                self.started.set()
            if "done" in facts:
                self.done = before + facts["done"]
                self.working.set()
            self.aborted += "aborted" in facts
            self.fenced = facts.get("fenced", self.fenced)

    def pause(self) -> None:
        """Pause the process with SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process with SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def ended(self) -> int:
        """Wait until the process ends by itself; return its exit status."""
        assert self._process is not None
        status = await self._process.wait()
        if self._reader is not None:
            await self._reader
        return status

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.kills += 1
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def stop(self) -> None:
        """Stop the process with SIGTERM, and with SIGKILL after STOP_S."""
        if self._process is not None:
            await end(self._process)
            await self.ended()


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process, also a paused one: SIGTERM and SIGCONT, then SIGKILL after STOP_S."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def run_until_done(job: Coroutine[None, None, bool]) -> bool:
    """Return the result of the job. SIGTERM cancels the job as Ctrl-C does, so that it stops its child processes."""
    task, myself = asyncio.ensure_future(job), asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if myself is not None and myself.cancelling():
            raise  # Ctrl-C
        sys.exit(128 + signal.SIGTERM)
