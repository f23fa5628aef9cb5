"""EDGE: one service as a process: starts, stops, kills, pauses and restarts it, and checks its health.

States and rules are Docker's. Health checks begin after an interval. Failures within the start period do not count. A
paused service is not checked. A service that was stopped or killed on purpose stays down, whatever its restart policy.
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
"""A service that ran for so long is started again without a growing delay."""


STOP_PATIENCE_S = 0.02
NO_PROGRAM = 127
"""The exit status of a shell for a program that is not there."""


class State(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    EXITED = "exited"


NEXT: Mapping[State, tuple[State, ...]] = {
    State.CREATED: (State.RUNNING,),
    State.RUNNING: (State.PAUSED, State.RESTARTING, State.EXITED),
    State.PAUSED: (State.RUNNING, State.RESTARTING, State.EXITED),
    State.RESTARTING: (State.RUNNING, State.EXITED),
    State.EXITED: (State.RUNNING,),
}


class Health(StrEnum):
    NONE = ""
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A health check: exit status 0 is health."""

    command: list[str]
    interval_s: float = 30.0
    timeout_s: float = 30.0
    retries: int = 3
    start_period_s: float = 0.0
    start_interval_s: float = 5.0


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """How a service runs here, names and paths put in."""

    command: list[str]
    environment: dict[str, str]
    folder: Path
    log: Path
    check: Check | None = None
    restart: str = "no"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0


class ServiceError(RuntimeError):
    """A service cannot do what was asked in the state that it is in."""


class Running:
    """One service. `starts` counts its processes, `exit_status` is the last one's (negative: the signal)."""

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self.spec = spec
        self.state = State.CREATED
        self.health = Health.NONE
        self.exit_status: int | None = None
        self.starts = 0
        self.last_check = ""
        """What the health check said last, if it failed."""
        self._meant_to_end = False
        self._process: asyncio.subprocess.Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.up else None

    @property
    def up(self) -> bool:
        return self.state in (State.RUNNING, State.PAUSED)

    @property
    def down(self) -> bool:
        """No process of it is up, nor will be unless it is started."""
        return self.state in (State.CREATED, State.EXITED)

    @property
    def over(self) -> bool:
        """It has ended and will not come back by itself."""
        return self.state is State.EXITED

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until `true()`, asked again whenever state or health has changed."""
        while not true():
            await self._bell.wait()

    async def start(self) -> None:
        """Starts its process, if none is up. Raises OSError."""
        if not self.down:
            return
        self._meant_to_end = False
        await self._spawn()
        self._life = asyncio.create_task(self._live(), name=self.name)

    async def stop(self) -> None:
        """Its stop signal, and SIGKILL after the grace period. Returns when it has ended."""
        self._meant_to_end = True
        if self.state is State.RESTARTING:
            await self._end_life()
            self._become(State.EXITED)
        if not self.up:
            return
        self._signal(self.spec.stop_signal)
        self._signal_all(signal.SIGCONT)  # who is paused hears nothing else
        try:
            async with asyncio.timeout(self.spec.stop_grace_s):
                await self.until(lambda: self.over)
        except TimeoutError:
            await self.kill()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal. After SIGKILL it returns when the process has ended, and it stays down until `start`."""
        if not self.up:
            raise ServiceError(f"{self.name} is {self.state}: there is nothing to kill")
        if number is not signal.SIGKILL:
            self._signal(number)
            return
        self._meant_to_end = True
        self._signal_all(signal.SIGKILL)
        await self.until(lambda: self.over)

    async def pause(self) -> None:
        """SIGSTOP to all its processes; returns when the kernel has stopped the first one."""
        if self.state is not State.RUNNING:
            raise ServiceError(f"{self.name} is {self.state}: only a running service can be paused")
        while self.up and not await self._stood_still():
            # Who waits in vfork for a child that was stopped before its exec cannot stop: let both go on a little.
            self._signal_all(signal.SIGCONT)
            await asyncio.sleep(STOP_PATIENCE_S)
        if self.up:
            self._become(State.PAUSED)

    async def unpause(self) -> None:
        """SIGCONT."""
        if self.state is not State.PAUSED:
            raise ServiceError(f"{self.name} is {self.state}: it is not paused")
        self._signal_all(signal.SIGCONT)
        self._become(State.RUNNING)

    # Inside

    def _become(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.name}: {self.state} -> {state}"
        self.state = state
        self._ring()

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _stood_still(self) -> bool:
        """Sends SIGSTOP and looks, for a moment, whether it has worked: threads stop one after the other."""
        assert self._process is not None
        self._signal_all(signal.SIGSTOP)
        deadline = monotonic() + STOP_PATIENCE_S
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
        self.health = Health.STARTING if self.spec.check is not None else Health.NONE
        self._become(State.RUNNING)

    async def _live(self) -> None:
        """From a start to the end that is no restart."""
        delay_s = RESTART_DELAY_S
        while True:
            assert self._process is not None
            began = monotonic()
            doctor = asyncio.create_task(self._look_after(self.spec.check)) if self.spec.check is not None else None
            try:
                status = await self._process.wait()
            finally:
                if doctor is not None:
                    await cancelled(doctor)
            self._signal_all(signal.SIGKILL)  # a container ends with its first process
            self.exit_status, self.health = status, Health.NONE
            if not self._comes_back(status):
                self._become(State.EXITED)
                return
            self._become(State.RESTARTING)
            if monotonic() - began >= STEADY_S:
                delay_s = RESTART_DELAY_S
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)
            try:
                await self._spawn()
            except OSError as error:
                with self.spec.log.open("a") as log:
                    log.write(f"cannot be started again: {error}\n")
                self.exit_status = NO_PROGRAM
                self._become(State.EXITED)
                return

    def _comes_back(self, status: int) -> bool:
        policy, _, most = self.spec.restart.partition(":")
        if self._meant_to_end or policy == "no":
            return False
        if policy == "on-failure":
            return status != 0 and (not most or self.starts <= int(most))
        return True

    async def _end_life(self) -> None:
        if self._life is not None:
            await cancelled(self._life)

    async def _look_after(self, check: Check) -> None:
        began = monotonic()
        failures = 0
        while True:
            starting = self.health is Health.STARTING and monotonic() - began < check.start_period_s
            await asyncio.sleep(check.start_interval_s if starting else check.interval_s)
            if self.state is State.PAUSED:
                continue
            said = await self._examine(check)
            before = self.health
            if said is None:
                failures, self.last_check, self.health = 0, "", Health.HEALTHY
            else:
                self.last_check = said
                within = before is Health.STARTING and monotonic() - began < check.start_period_s
                failures += not within
                if failures >= check.retries:
                    self.health = Health.UNHEALTHY
            if self.health is not before:
                self._ring()

    async def _examine(self, check: Check) -> str | None:
        """What a failed check said, None for one that passed."""
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
    """A process in a session of its own, its output in the log, or in a pipe. It does not outlive this process."""
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


def mortal(command: list[str]) -> list[str]:
    """The command such that the kernel kills its process when that of its parent dies, where util-linux is."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command] if shutil.which("setpriv") else command


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass  # all of it has ended


def _stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped (or the process is gone)."""
    try:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(text.rpartition(")")[2].split()[0] in "TtZX" for text in stats)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancels a task and waits for its end; another error than that is raised."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise  # it was the caller who was cancelled
