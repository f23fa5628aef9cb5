"""One timer for all sessions."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from semel_broker.groups.deadlines import Alarm, Deadlines, Key


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

    alarm = Alarm(now_ms, look)
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
    alarm = Alarm(lambda: 0, lambda key, _now: looks.append(key))
    alarm.arm(("g", "a"), 1)
    alarm.stop()
    alarm.arm(("g", "b"), 1)
    await asyncio.sleep(0.02)
    assert looks == []
