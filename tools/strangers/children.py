"""EDGE: runs the processes of a suite, kills them with SIGKILL while they work, and restarts them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from tools.strangers import script

LOOK_S = 0.5
LOG_TAIL_CHARS = 600


class Child:
    """A process that can be restarted with the same command; all its runs write to one log."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.log = script.scratch() / f"{name}.log"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout_s: float = 60) -> None:
        """Stop the process with SIGTERM, and with SIGKILL after `timeout_s`."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:]


def kill_next(children: Sequence[Child], moment: int) -> None:
    """Kill a broker or a child with SIGKILL, in turn, and restart it."""
    if moment % 2 == 0:
        script.kill_and_start((moment // 2) % script.brokers())
    else:
        child = children[moment // 2 % len(children)]
        child.kill()
        child.start()


def run_with_kills(
    children: Sequence[Child],
    done: Callable[[], bool],
    *,
    kills: int,
    pause_s: float,
    timeout_s: float,
) -> None:
    """Kill brokers and children `kills` times while the children work; return when `done` is true, then stop the
    children.

    Children that end are restarted. Raises AssertionError with the ends of their logs after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    next_kill, moment = time.monotonic() + pause_s, 0
    try:
        while not done() or moment < kills:
            told = " / ".join(each.log_tail() for each in children)
            assert time.monotonic() < deadline, f"not done after {timeout_s:g} s and {moment} kills: {told}"
            if moment < kills and time.monotonic() > next_kill:
                kill_next(children, moment)
                next_kill, moment = time.monotonic() + pause_s, moment + 1
            for child in children:
                if child.status is not None:
                    child.start()
            time.sleep(LOOK_S)  # between two checks
    finally:
        for child in children:
            child.stop()
