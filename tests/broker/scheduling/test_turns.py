"""Turns of the event loop: connections that authenticate have a share of each turn, and always more than nothing."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import cast

import pytest
from semel_broker.scheduling.turns import LOGIN_SHARE, Turns


class Loop:
    """A loop that the test turns by hand, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> bool:
        """Run the callbacks that are due. Returns whether there were any."""
        due, self._soon = self._soon, []
        for callback in due:
            callback()
        return bool(due)


class RecordedTurn:
    """A task that takes its turn for `takes_s` and records its name."""

    def __init__(self, loop: Loop, name: str, done: list[str], takes_s: float = 0.0) -> None:
        self._loop, self._name, self._done, self._takes_s = loop, name, done, takes_s

    def take_turn(self) -> None:
        self._loop.now += self._takes_s
        self._done.append(self._name)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def turns(loop: Loop) -> Turns:
    return Turns(cast("AbstractEventLoop", loop), lambda: loop.now)


@pytest.mark.parametrize("login_s", [0.0, 0.000_03], ids=["a clock that stands still", "a clock that goes on"])
def test_one_login_has_its_turn_while_nothing_else_waits(loop: Loop, turns: Turns, login_s: float) -> None:
    done: list[str] = []
    for number in range(3):
        turns.queue_login(RecordedTurn(loop, f"login {number}", done, login_s).take_turn)
    for number in range(3):
        assert loop.turn()
        assert done == [f"login {each}" for each in range(number + 1)]
    assert not loop.turn()


def test_requests_come_before_logins(loop: Loop, turns: Turns) -> None:
    done: list[str] = []
    turns.queue_login(RecordedTurn(loop, "login", done).take_turn)
    turns.queue(RecordedTurn(loop, "request", done).take_turn)
    loop.turn()
    assert done == ["request", "login"]


def test_logins_have_a_share_of_a_busy_loop(loop: Loop, turns: Turns) -> None:
    done: list[str] = []
    logins = 100
    for _ in range(logins):
        turns.queue_login(RecordedTurn(loop, "login", done, 0.000_1).take_turn)
    turns.queue(RecordedTurn(loop, "request", done, 0.004).take_turn)
    loop.turn()
    assert done[0] == "request"
    assert done.count("login") == pytest.approx(0.004 * LOGIN_SHARE / 0.000_1, abs=1)
    while loop.turn():
        pass
    assert done.count("login") == logins


def test_the_work_of_connections_that_did_not_queue_counts_too(loop: Loop, turns: Turns) -> None:
    done: list[str] = []
    for _ in range(100):
        turns.queue_login(RecordedTurn(loop, "login", done, 0.000_1).take_turn)
    loop.now += 0.008  # the loop has served connections that did not have to wait
    loop.turn()
    assert len(done) == pytest.approx(0.008 * LOGIN_SHARE / 0.000_1, abs=1)


def test_a_connection_that_is_gone_has_no_turn(loop: Loop, turns: Turns) -> None:
    done: list[str] = []
    gone = RecordedTurn(loop, "gone", done).take_turn
    turns.queue_login(gone)
    turns.queue_login(RecordedTurn(loop, "login", done).take_turn)
    turns.leave(gone)
    while loop.turn():
        pass
    assert done == ["login"]


def test_one_connection_of_a_thousand_is_not_served_twice_before_the_others(loop: Loop, turns: Turns) -> None:
    done: list[str] = []

    def login(name: str, steps: int) -> Callable[[], None]:
        def take_turn() -> None:
            done.append(name)
            if done.count(name) < steps:
                turns.queue_login(take_turn)

        return take_turn

    for number in range(1_000):
        turns.queue_login(login(str(number), 2))
    while loop.turn():
        pass
    assert done == [str(each) for each in range(1_000)] * 2
