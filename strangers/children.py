"""EDGE: the processes that a suite runs beside its script: killed with SIGKILL amid their work, and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from strangers import script

LOOK_S = 0.5
LAST_WORDS = 600


class Child:
    """One process after the other with one command; all write to one log."""

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
        """Its exit status, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout_s: float = 60) -> None:
        """SIGTERM, and SIGKILL for one that does not end."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-LAST_WORDS:]


def strike(children: Sequence[Child], moment: int) -> None:
    """SIGKILL for a broker and for a child in turn; each comes back."""
    if moment % 2 == 0:
        script.kill_and_start((moment // 2) % script.brokers())
    else:
        child = children[moment // 2 % len(children)]
        child.kill()
        child.start()


def work(
    children: Sequence[Child],
    done: Callable[[], bool],
    *,
    kills: int,
    pause_s: float,
    timeout_s: float,
) -> None:
    """Strikes `kills` times while the children work, and returns once they are done, before they are ended.

    Children that end are started again. Raises AssertionError with their last words after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    next_strike, moment = time.monotonic() + pause_s, 0
    try:
        while not done() or moment < kills:
            told = " / ".join(each.last_words() for each in children)
            assert time.monotonic() < deadline, f"not done after {timeout_s:g} s and {moment} kills: {told}"
            if moment < kills and time.monotonic() > next_strike:
                strike(children, moment)
                next_strike, moment = time.monotonic() + pause_s, moment + 1
            for child in children:
                if child.status is not None:
                    child.start()
            time.sleep(LOOK_S)  # between two looks
    finally:
        for child in children:
            child.stop()
