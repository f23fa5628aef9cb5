"""The thread that reports a hanging disk while the loop cannot, tested look by look: starts, a held loop, stops."""

from __future__ import annotations

from typing import NoReturn

import pytest
from semel_storage.disk import hang_watch
from semel_storage.disk.hang_log import HangLog
from semel_storage.disk.hang_watch import LOOP_NOTICES_S, HangWatch
from semel_storage.disk.waiting_calls import WaitingCall

LIMIT_S = 10.0


class EndedError(Exception):
    """Raised in place of the end of the process."""


class HangWatchSetup:
    """A watch with a disk and a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.call: WaitingCall | None = None
        self.is_to_stop = self.has_told = False
        self.lines: list[str] = []

        def note(event: str, **facts: object) -> None:
            self.lines.append(f"{event} {facts['path']}")

        log = HangLog(LIMIT_S, lambda: self.now_s, problem=note, event=note)
        monkeypatch.setattr(hang_watch, "monotonic", lambda: self.now_s)
        self.watch = HangWatch(self, log, LIMIT_S, is_to_stop=lambda: self.is_to_stop, end=self.end)

    def oldest_call(self) -> WaitingCall | None:
        return self.call

    def end(self, message: str) -> NoReturn:
        raise EndedError(message)

    def waits(self, seconds: float | None) -> None:
        """Look while a call has been waiting for `ms`; None: no call waits."""
        self.call = None if seconds is None else WaitingCall("data/a", seconds)
        self.watch.look()


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> HangWatchSetup:
    return HangWatchSetup(monkeypatch)


def test_a_start_tells_each_hang_once_and_its_end(setup: HangWatchSetup) -> None:
    for seconds in (1, LIMIT_S - 0.1, LIMIT_S, LIMIT_S + 20, None, LIMIT_S):
        setup.waits(seconds)
    assert setup.lines == ["disk_hangs data/a", "disk_goes_on data/a", "disk_hangs data/a"]


def test_a_start_that_hangs_ends_if_it_is_to_stop(setup: HangWatchSetup) -> None:
    setup.is_to_stop = True
    setup.waits(LIMIT_S - 1)
    with pytest.raises(EndedError, match="a call for data/a waits for 10 s"):
        setup.waits(LIMIT_S)


def test_of_a_broker_that_serves_the_loop_tells_and_the_thread_only_if_the_loop_does_not(setup: HangWatchSetup) -> None:
    setup.watch.has_told = lambda: setup.has_told
    setup.waits(LIMIT_S + LOOP_NOTICES_S - 0.1)
    assert setup.lines == []
    setup.has_told = True
    setup.waits(LIMIT_S + LOOP_NOTICES_S)
    assert setup.lines == []
    setup.has_told = False  # the loop is held
    setup.waits(LIMIT_S + LOOP_NOTICES_S)
    setup.waits(None)
    assert setup.lines == ["disk_hangs data/a", "disk_goes_on data/a"]


def test_a_stop_ends_after_the_limit_while_the_disk_hangs(setup: HangWatchSetup) -> None:
    setup.watch.has_told = lambda: True
    setup.waits(LIMIT_S + 60)
    setup.watch.stops()
    setup.now_s += LIMIT_S - 0.1
    setup.waits(LIMIT_S + 70)
    setup.now_s += 0.2
    setup.waits(LIMIT_S - 1)  # one that is slow, but does not hang
    with pytest.raises(EndedError, match="the disk hangs"):
        setup.waits(LIMIT_S)
    assert setup.lines == [], "the loop has told it"
