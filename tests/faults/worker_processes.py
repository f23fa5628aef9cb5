"""The worker processes of a round: starts, kills, pauses and replaces them, and restarts those that have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import msgspec

from faults.worker import FENCED, STUCK, WorkerPlan, WorkerRun

TESTS = Path(__file__).parents[1]
AGAIN_S = 0.2
LOG_LINES = 15


class WorkerProcess:
    """One process of a worker. `may_end`: its end is expected, because it was killed or replaced."""

    def __init__(self, run: WorkerRun, log: Path) -> None:
        self.run, self.log = run, log
        self.is_current = True
        self.may_end = False
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", "faults.worker", msgspec.json.encode(self.run).decode()]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            )

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        self.may_end = True
        self.signal(signal.SIGKILL)

    def dismiss(self) -> None:
        """Send SIGTERM to a process that was replaced."""
        self.may_end = True
        self.signal(signal.SIGTERM)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])


class WorkerProcesses:
    """One worker: its current process, and replaced processes that still run."""

    def __init__(self, plan: WorkerPlan, bootstrap: str, directory: Path, seed: int, problems: list[str]) -> None:
        self.plan = plan
        self.processes = 0
        self.fenced = 0
        self.stuck = 0
        self._bootstrap, self._directory, self._seed, self._problems = bootstrap, directory, seed, problems
        self._present: WorkerProcess | None = None
        self._all: list[WorkerProcess] = []
        self._watching: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self) -> WorkerProcess:
        """Start a new process, which replaces the current one."""
        if self._present is not None:
            self._present.is_current = False
        self.processes += 1
        name = f"{self.plan.name}.{self.processes}"
        run = WorkerRun(
            plan=self.plan,
            incarnation=self.processes,
            bootstrap=self._bootstrap,
            journal=str(self._directory / f"{name}.jsonl"),
            seed=self._seed,
        )
        self._present = process = WorkerProcess(run, self._directory / f"{name}.log")
        await process.start()
        self._all.append(process)
        self._watching.append(asyncio.create_task(self._watch(process)))
        return process

    async def _watch(self, process: WorkerProcess) -> None:
        """Wait for the end of a process, and start the next one if it was the current one. An end that is not expected
        is a problem.
        """
        status = await process.ended()
        self.fenced += status == FENCED
        self.stuck += status == STUCK
        was_told = self._is_stopping and status in (0, -signal.SIGTERM)  # -SIGTERM: before it has set its handler
        is_expected = process.may_end or status in (FENCED, STUCK) or was_told
        if not is_expected:
            self._problems.append(f"{process.run.name} ended with status {status}:\n{process.log_tail()}")
        if process.is_current and not self._is_stopping:
            await asyncio.sleep(AGAIN_S)
            if process.is_current and not self._is_stopping:
                await self.start()

    @property
    def present(self) -> WorkerProcess:
        assert self._present is not None
        return self._present

    def kill(self) -> None:
        """Send SIGKILL to the current process; the next one is started."""
        self.present.kill()

    def resume_all(self) -> None:
        """Continue all paused processes."""
        for process in self._all:
            process.resume()

    async def stop(self, timeout_s: float) -> bool:
        """Send SIGTERM to all processes, and kill those that still run after `timeout_s`. Returns whether none did."""
        self._is_stopping = True
        self.resume_all()
        for process in self._all:
            process.signal(signal.SIGTERM)
        if not self._watching:
            return True
        _, late = await asyncio.wait(self._watching, timeout=timeout_s)
        for process in self._all:
            process.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._watching), 10)
        return not late
