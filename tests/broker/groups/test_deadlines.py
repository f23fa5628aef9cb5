"""One timer for all sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.groups.deadlines import Alarm, Deadlines, Key
from support.virtual_loop import VirtualLoop


class Checks:
    """The owner of the keys of an alarm, made of two functions."""

    def __init__(self, monotonic_ms: Callable[[], int], check: Callable[[Key, int], int | None]) -> None:
        self.monotonic_ms = monotonic_ms
        self.check_deadline = check


def test_keys_are_due_in_order_of_time() -> None:
    deadlines = Deadlines()
    for name, when_ms in (("b", 20), ("a", 10), ("c", 30)):
        deadlines.arm(("g", name), when_ms)
    assert deadlines.next_ms == 10
    assert deadlines.due(20) == [("g", "a"), ("g", "b")]
    assert deadlines.due(29) == []
    assert deadlines.due(30) == [("g", "c")]
    assert deadlines.next_ms is None


def test_key_is_due_at_the_earliest_of_its_times_and_only_once() -> None:
    deadlines = Deadlines()
    for when_ms in (20, 10, 15):
        deadlines.arm(("g", "a"), when_ms)
    assert deadlines.due(100) == [("g", "a")]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=30))
def test_every_key_is_due_when_its_earliest_time_has_come(armed: list[tuple[str, int]]) -> None:
    deadlines = Deadlines()
    earliest: dict[str, int] = {}
    for name, when_ms in armed:
        deadlines.arm(("g", name), when_ms)
        earliest[name] = min(when_ms, earliest.get(name, when_ms))
    seen = {name: now for now in range(51) for _, name in deadlines.due(now)}
    assert seen == earliest


async def test_alarm_checks_at_the_deadline_and_at_the_next_one() -> None:
    loop = asyncio.get_running_loop()
    looks: list[tuple[Key, int]] = []
    done = loop.create_future()

    def now_ms() -> int:
        return int(loop.time() * 1000)

    def look(key: Key, at_ms: int) -> int | None:
        looks.append((key, at_ms))
        if len(looks) == 3:
            done.set_result(None)
            return None
        return at_ms + 10

    alarm = Alarm(Checks(now_ms, look))
    start_ms = now_ms()
    alarm.arm(("g", "later"), start_ms + 60_000)
    alarm.arm(("g", "soon"), start_ms + 10)
    await asyncio.wait_for(done, 10)
    assert [key for key, _ in looks] == [("g", "soon")] * 3
    assert looks[0][1] >= start_ms + 10
    assert looks[2][1] >= start_ms + 30
    alarm.stop()


async def test_stopped_alarm_is_silent() -> None:
    looks: list[Key] = []
    alarm = Alarm(Checks(lambda: 0, lambda key, _now: looks.append(key)))
    alarm.arm(("g", "a"), 1)
    alarm.stop()
    alarm.arm(("g", "b"), 1)
    await asyncio.sleep(0.02)
    assert looks == []


async def test_check_that_fails_harms_no_other_key_and_comes_again() -> None:
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    checked: list[str] = []

    def check(key: Key, at_ms: int) -> int | None:
        checked.append(key[1])
        if key[1] == "b" and checked.count("b") == 1:
            raise ZeroDivisionError
        return None

    alarm = Alarm(Checks(lambda: int(loop.time() * 1000), check))
    due_ms = int(loop.time() * 1000) + 10
    for member_id in "abc":
        alarm.arm(("g", member_id), due_ms)
    await asyncio.sleep(0.1)
    assert (checked, len(errors)) == (["a", "b", "c"], 1)
    await asyncio.sleep(60)
    assert checked == ["a", "b", "c", "b"]
    alarm.stop()


def test_virtual_timer_is_a_handle_without_a_time_as_on_uvloop() -> None:
    async def timers() -> list[bool]:
        loop = asyncio.get_running_loop()
        handles = loop.call_at(loop.time() + 0.0002, print), loop.call_later(-5, print)
        for handle in handles:
            handle.cancel()
        return [hasattr(handle, "when") for handle in handles]

    async def virtual_timer() -> asyncio.Handle:
        return asyncio.get_running_loop().call_later(60, print)

    assert uvloop.run(timers()) == [False, False]
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert not hasattr(runner.run(virtual_timer()), "when")


@pytest.mark.real_time
def test_alarm_on_uvloop_checks_every_key() -> None:
    """Real time, 0.2 s: the fault depends on the time that passes between two calls of uvloop's clock."""
    errors: list[object] = []

    async def rounds() -> list[int]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        checked = []
        for _ in range(20):
            seen: set[Key] = set()

            def now_ms() -> int:
                return int(time.monotonic() * 1000)

            def check(key: Key, at_ms: int, seen: set[Key] = seen) -> int | None:
                seen.add(key)
                if key[1] == "":
                    alarm.arm((key[0], "next"), at_ms + 1)  # noqa: B023 (the alarm of the round)
                return None

            alarm = Alarm(Checks(now_ms, check))
            at_ms = now_ms() + 2
            for number in range(40):
                alarm.arm((str(number), ""), at_ms)
            ends_s = time.monotonic() + 5
            while len(seen) < 80 and time.monotonic() < ends_s:
                await asyncio.sleep(0.005)
            checked.append(len(seen))
            alarm.stop()
        return checked

    assert uvloop.run(rounds()) == [80] * 20
    assert errors == []
