"""The queue of lines: a bound for each kind, the order of arrival, and a count of lost lines in their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.output.line_queue import Line, LineQueue, Lost, Room

ROOMS = {"log": Room(5, 60), "error": Room(3, 40), "kept": Room(2, 20, is_hard=False)}

puts = st.tuples(st.just("put"), st.sampled_from(sorted(ROOMS)), st.integers(1, 30))
takes = st.tuples(st.just("take"), st.integers(0, 80), st.just(0))
dones = st.tuples(st.just("done"), st.just(0), st.just(0))


@pytest.mark.proves("lost-lines")
@given(st.lists(st.one_of(puts, puts, puts, takes, dones), max_size=80))
def test_every_line_is_written_in_order_or_counted_in_its_place(steps: list[tuple[str, object, int]]) -> None:
    queue = LineQueue(ROOMS)
    expected: list[tuple[str, bytes] | dict[str, int]] = []  # what the output must have in the end
    written: list[Line | Lost] = []
    in_hand: list[Line | Lost] = []
    held: dict[str, list[int]] = {kind: [] for kind in ROOMS}  # sizes of lines that are not done
    for now_ms, (step, first, size) in enumerate(steps):
        if step == "put":
            kind = str(first)
            room, data = ROOMS[kind], b"x" * size
            fits = len(held[kind]) < room.lines_max and sum(held[kind]) + size <= room.bytes_max
            queued = queue.put(kind, data, now_ms)
            assert queued == (fits or not room.is_hard)
            if queued:
                held[kind].append(size)
                expected.append((kind, data))
            elif expected and isinstance(expected[-1], dict) and len(queue) and queue._waiting[-1].__class__ is Lost:
                expected[-1][kind] = expected[-1].get(kind, 0) + 1
            else:
                expected.append({kind: 1})
            assert queue.has_room(kind) == (len(held[kind]) < room.lines_max and sum(held[kind]) < room.bytes_max)
        elif step == "take" and not in_hand:
            before = len(queue)
            in_hand = queue.take(int(str(first)))
            lines = [each for each in in_hand if isinstance(each, Line)]
            assert bool(in_hand) == bool(before)
            assert len(lines) <= 1 or sum(len(each.data) for each in lines) <= int(str(first))
        elif step == "done":
            queue.done(in_hand)
            for each in in_hand:
                if isinstance(each, Line):
                    held[each.kind].remove(len(each.data))
            written += in_hand
            in_hand = []
    written += [*in_hand, *queue.take_all()]
    lost = {kind: sum(each.lines.get(kind, 0) for each in written if isinstance(each, Lost)) for kind in ROOMS}
    assert lost == queue.lost
    assert _merged(written) == _merged_expected(expected)


def _merged(written: list[Line | Lost]) -> list[tuple[str, bytes] | int]:
    """The lines, and the number of lost ones between them."""
    return _numbers(
        [(each.kind, each.data) if isinstance(each, Line) else sum(each.lines.values()) for each in written]
    )


def _merged_expected(expected: list[tuple[str, bytes] | dict[str, int]]) -> list[tuple[str, bytes] | int]:
    return _numbers([each if isinstance(each, tuple) else sum(each.values()) for each in expected])


def _numbers(found: list[tuple[str, bytes] | int]) -> list[tuple[str, bytes] | int]:
    made: list[tuple[str, bytes] | int] = []
    for each in found:
        if isinstance(each, int) and made and isinstance(made[-1], int):
            made[-1] += each
        else:
            made.append(each)
    return made


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_flood_of_one_kind_takes_no_room_of_another(flood: int, errors: int) -> None:
    queue = LineQueue(ROOMS)
    for _ in range(flood):
        queue.put("log", b"flood", 0)
    for number in range(errors):
        assert queue.put("error", b"error", 0) == (number < ROOMS["error"].lines_max)


@given(st.lists(st.sampled_from(["log", "error"]), max_size=500))
def test_the_queue_holds_at_most_one_gap_for_each_line(kinds: list[str]) -> None:
    queue = LineQueue(ROOMS)
    for kind in kinds:
        queue.put(kind, b"x" * 10, 0)
    waiting = queue.take_all()
    lines = sum(isinstance(each, Line) for each in waiting)
    assert lines <= ROOMS["log"].lines_max + ROOMS["error"].lines_max
    assert len(waiting) <= 2 * lines + 1


def test_a_gap_has_the_time_of_its_first_line() -> None:
    queue = LineQueue({"log": Room(1, 100)})
    for now_ms in (10, 20, 30):
        queue.put("log", b"line", now_ms)
    line, gap = queue.take(1_000)
    assert line == Line("log", b"line")
    assert gap == Lost(20, {"log": 2})


def test_lines_that_nothing_will_write_are_lost_lines() -> None:
    queue = LineQueue({"log": Room(3, 100)})
    for _ in range(5):
        queue.put("log", b"line", 0)
    queue.lose_all()
    assert queue.lost == {"log": 5}
    assert queue.has_room("log")
    assert not len(queue)


def test_an_unknown_kind_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError):
        LineQueue(ROOMS).put("other", b"line", 0)
