"""EDGE: one service as a process: starts, stops, kills, pauses and restarts it, and checks its health.

States and rules are Docker's. Health checks begin after an interval. Failures within the start period do not count. A
paused service is not checked. A service that was stopped or killed by request is not restarted by its policy.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import IO, Any

import msgspec

RESTART_DELAY_S = 0.1
RESTART_DELAY_MAX_S = 60.0
STEADY_S = 10.0
"""After a run of this time the delay before a restart is RESTART_DELAY_S again."""

STOP_WAIT_S = 0.02
NO_PROGRAM = 127
"""The exit status of a shell for a missing program."""


class ServiceState(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    EXITED = "exited"


NEXT: Mapping[ServiceState, tuple[ServiceState, ...]] = {
    ServiceState.CREATED: (ServiceState.RUNNING,),
    ServiceState.RUNNING: (ServiceState.PAUSED, ServiceState.RESTARTING, ServiceState.EXITED),
    ServiceState.PAUSED: (ServiceState.RUNNING, ServiceState.RESTARTING, ServiceState.EXITED),
    ServiceState.RESTARTING: (ServiceState.RUNNING, ServiceState.EXITED),
    ServiceState.EXITED: (ServiceState.RUNNING,),
}


class ServiceHealth(StrEnum):
    NONE = ""
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class ServiceCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A health check: the service is healthy if `command` exits with status 0."""

    command: list[str]
    interval_s: float = 30.0
    timeout_s: float = 30.0
    retries: int = 3
    start_period_s: float = 0.0
    start_interval_s: float = 5.0


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a service, with names and paths replaced by those of this machine."""

    command: list[str]
    environment: dict[str, str]
    folder: Path
    log: Path
    check: ServiceCheck | None = None
    restart: str = "no"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0


class ServiceError(RuntimeError):
    """The request is not possible in the current state of the service."""


class ServiceRun:
    """One service. `starts`: how many processes it has had. `exit_status`: of the last one (negative: the signal)."""

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self.spec = spec
        self.state = ServiceState.CREATED
        self.health = ServiceHealth.NONE
        self.exit_status: int | None = None
        self.starts = 0
        self.last_check = ""
        """The output of the last health check, if it failed."""
        self._end_requested = False
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.up else None

    @property
    def up(self) -> bool:
        return self.state in (ServiceState.RUNNING, ServiceState.PAUSED)

    @property
    def down(self) -> bool:
        """Whether it has no process, and gets none until `start`."""
        return self.state in (ServiceState.CREATED, ServiceState.EXITED)

    @property
    def over(self) -> bool:
        """Whether it has ended and is not restarted."""
        return self.state is ServiceState.EXITED

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until `true()`, which is called after each change of state or health."""
        while not true():
            await self._changed.wait()

    async def start(self) -> None:
        """Start its process, if it has none. Raises OSError."""
        if not self.down:
            return
        self._end_requested = False
        await self._spawn()
        self._running = asyncio.create_task(self._run_until_ended(), name=self.name)

    async def stop(self) -> None:
        """Send the stop signal, and SIGKILL after the grace period. Returns when the service has ended."""
        self._end_requested = True
        if self.state is ServiceState.RESTARTING:
            await self._cancel_restart()
            self._become(ServiceState.EXITED)
        if not self.up:
            return
        self._signal(self.spec.stop_signal)
        self._signal_all(signal.SIGCONT)  # a paused process handles no other signal
        try:
            async with asyncio.timeout(self.spec.stop_grace_s):
                await self.until(lambda: self.over)
        except TimeoutError:
            await self.kill()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal. SIGKILL returns when the service has ended; it stays stopped until `start`."""
        if not self.up:
            raise ServiceError(f"{self.name} is {self.state}: there is nothing to kill; start it first")
        if number is not signal.SIGKILL:
            self._signal(number)
            return
        self._end_requested = True
        self._signal_all(signal.SIGKILL)
        await self.until(lambda: self.over)

    async def pause(self) -> None:
        """Send SIGSTOP to all its processes. Returns when the kernel has stopped the first one."""
        if self.state is not ServiceState.RUNNING:
            raise ServiceError(f"{self.name} is {self.state}: only a running service can be paused; start it first")
        while self.up and not await self._send_stop():
            # A process in vfork waits for its child's exec and cannot stop. If the child was stopped before its exec,
            # both must continue for a moment.
            self._signal_all(signal.SIGCONT)
            await asyncio.sleep(STOP_WAIT_S)
        if self.up:
            self._become(ServiceState.PAUSED)

    async def unpause(self) -> None:
        """Send SIGCONT to all its processes."""
        if self.state is not ServiceState.PAUSED:
            raise ServiceError(f"{self.name} is {self.state}: it is not paused")
        self._signal_all(signal.SIGCONT)
        self._become(ServiceState.RUNNING)

    # --- inside ---

    def _become(self, state: ServiceState) -> None:
        assert state in NEXT[self.state], f"{self.name}: {self.state} -> {state}"
        self.state = state
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _send_stop(self) -> bool:
        """Send SIGSTOP, and check for STOP_WAIT_S whether all threads have stopped. They stop one after the other."""
        assert self._process is not None
        self._signal_all(signal.SIGSTOP)
        deadline = monotonic() + STOP_WAIT_S
        while not (stopped := _stopped(self._process.pid)) and monotonic() < deadline:
            await asyncio.sleep(0.001)
        return stopped

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is not None:
            _signal_group(self._process.pid, number)

    async def _spawn(self) -> None:
        self._process = await spawn(self.spec.command, self.spec, self.spec.log)
        self.starts += 1
        self.exit_status = None
        self.health = ServiceHealth.STARTING if self.spec.check is not None else ServiceHealth.NONE
        self._become(ServiceState.RUNNING)

    async def _run_until_ended(self) -> None:
        """Wait for the end of the process, and restart it as long as the policy says so."""
        delay_s = RESTART_DELAY_S
        while True:
            assert self._process is not None
            began = monotonic()
            checking = asyncio.create_task(self._check_health(self.spec.check)) if self.spec.check is not None else None
            try:
                status = await self._process.wait()
            finally:
                if checking is not None:
                    await cancelled(checking)
            self._signal_all(signal.SIGKILL)  # a container ends with its first process
            self.exit_status, self.health = status, ServiceHealth.NONE
            if not self._should_restart(status):
                self._become(ServiceState.EXITED)
                return
            self._become(ServiceState.RESTARTING)
            if monotonic() - began >= STEADY_S:
                delay_s = RESTART_DELAY_S
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)
            try:
                await self._spawn()
            except OSError as error:
                with self.spec.log.open("a") as log:
                    log.write(f"the service cannot be started again: {error}\n")
                self.exit_status = NO_PROGRAM
                self._become(ServiceState.EXITED)
                return

    def _should_restart(self, status: int) -> bool:
        policy, _, most = self.spec.restart.partition(":")
        if self._end_requested or policy == "no":
            return False
        if policy == "on-failure":
            return status != 0 and (not most or self.starts <= int(most))
        return True

    async def _cancel_restart(self) -> None:
        if self._running is not None:
            await cancelled(self._running)

    async def _check_health(self, check: ServiceCheck) -> None:
        began = monotonic()
        failures = 0
        while True:
            starting = self.health is ServiceHealth.STARTING and monotonic() - began < check.start_period_s
            await asyncio.sleep(check.start_interval_s if starting else check.interval_s)
            if self.state is ServiceState.PAUSED:
                continue
            said = await self._run_check(check)
            before = self.health
            if said is None:
                failures, self.last_check, self.health = 0, "", ServiceHealth.HEALTHY
            else:
                self.last_check = said
                within = before is ServiceHealth.STARTING and monotonic() - began < check.start_period_s
                failures += not within
                if failures >= check.retries:
                    self.health = ServiceHealth.UNHEALTHY
            if self.health is not before:
                self._notify()

    async def _run_check(self, check: ServiceCheck) -> str | None:
        """Run the health check once. Returns its error, or None if it passed."""
        try:
            process = await spawn(check.command, self.spec, None)
        except OSError as error:
            return f"the check cannot be run: {error}"
        try:
            async with asyncio.timeout(check.timeout_s):
                said, _ = await process.communicate()
        except TimeoutError:
            return f"no answer within {check.timeout_s:g} s"
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode == 0:
            return None
        return said.decode(errors="replace").strip().rpartition("\n")[2][-300:] or f"exit status {process.returncode}"


async def spawn(command: list[str], spec: Spec, log: Path | None) -> asyncio.subprocess.Process:
    """Start a process in a new session. Its output goes to the log; without `log`, to a pipe."""
    if log is None:
        return await _process(command, spec, subprocess.PIPE)
    with log.open("ab") as out:
        return await _process(command, spec, out)


async def _process(command: list[str], spec: Spec, out: IO[bytes] | int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        cwd=spec.folder,
        env=spec.environment,
        start_new_session=True,
    )


def bound_to_parent(command: list[str]) -> list[str]:
    """The command in a form that makes the kernel kill the process when its parent dies, if setpriv is installed."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command] if shutil.which("setpriv") else command


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass  # the whole group has ended


def _stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped, or the process has ended."""
    try:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(text.rpartition(")")[2].split()[0] in "TtZX" for text in stats)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end. Raises the task's own error."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise  # the caller was cancelled, not the task
