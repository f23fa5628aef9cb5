"""The garbage collections that freeze new objects. Cycles among frozen objects are still collected later."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from semel_broker.frozen_heap import FULL, MIDDLE_PER_FULL, QUIET_S, SLOW_S, WHOLE_EVERY_S, WHOLE_LATEST_S, FrozenHeap
from support.virtual_loop import VirtualLoop

WHOLE = ["unfreeze", "collect", "freeze", "collect"]


class CollectorCalls:
    """Records the calls of the collector."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.thresholds = (700, 10, 10)

    def freeze(self) -> None:
        self.made.append("freeze")

    def unfreeze(self) -> None:
        self.made.append("unfreeze")

    def collect(self) -> int:
        self.made.append("collect")
        return 0

    def get_threshold(self) -> tuple[int, int, int]:
        return self.thresholds

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None:
        self.thresholds = threshold0, threshold1, threshold2


class Collections:
    """Collections of a given duration, as `gc.callbacks` report them, and a thread that is busy or quiet."""

    def __init__(self) -> None:
        self.calls, self.loop = CollectorCalls(), VirtualLoop()
        self._extra_s = 0.0
        self.busy_share = 0.0
        """The CPU time of the thread for each second that passes."""
        self.heap = FrozenHeap(self.loop, self.calls, self._now_s, lambda: self._now_s() * self.busy_share)
        self.heap.start()
        gc.callbacks.remove(self.heap.note)  # collections of the test process do not count
        assert self.taken() == WHOLE

    def _now_s(self) -> float:
        return self.loop.time() + self._extra_s

    def taken(self) -> list[str]:
        """The calls since the last time."""
        made, self.calls.made = self.calls.made, []
        return made

    def run(self, seconds: float, generation: int = FULL) -> list[str]:
        """The calls of the collector after one collection of this duration."""
        self.heap.note("start", {"generation": generation})
        self._extra_s += seconds
        self.heap.note("stop", {"generation": generation})
        return self.taken()

    def wait(self, seconds: float) -> list[str]:
        """What the passing of this time made the collector do."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        return self.taken()


@pytest.fixture
def collections() -> Iterator[Collections]:
    made = Collections()
    yield made
    made.heap.stop()
    made.loop.close()


def test_only_a_slow_full_collection_freezes_its_survivors(collections: Collections) -> None:
    assert collections.run(SLOW_S / 2) == []
    assert collections.run(SLOW_S * 2, generation=1) == []
    assert collections.run(SLOW_S * 2) == ["freeze"]


def test_full_collections_come_before_there_is_much_to_look_at(collections: Collections) -> None:
    assert collections.calls.thresholds == (700, 10, MIDDLE_PER_FULL)
    collections.heap.stop()
    assert collections.calls.thresholds == (700, 10, 10)


def test_each_hour_one_collection_looks_at_all_objects_at_a_quiet_moment(collections: Collections) -> None:
    assert collections.wait(WHOLE_EVERY_S) == []
    assert collections.wait(2 * QUIET_S) == WHOLE
    assert collections.wait(WHOLE_EVERY_S - QUIET_S) == []
    assert collections.wait(3 * QUIET_S) == WHOLE


def test_the_whole_collection_waits_while_the_loop_has_work(collections: Collections) -> None:
    collections.busy_share = 0.5
    assert collections.wait(2 * WHOLE_EVERY_S) == []
    collections.busy_share = 0.0
    assert collections.wait(3 * QUIET_S) == WHOLE


def test_a_loop_that_is_never_quiet_collects_among_all_objects_each_day(collections: Collections) -> None:
    collections.busy_share = 0.5
    assert collections.wait(WHOLE_LATEST_S - QUIET_S) == []
    assert collections.wait(3 * QUIET_S) == WHOLE


class CycleNode:
    """A part of a cycle."""

    other: "CycleNode"


def test_a_cycle_that_was_frozen_is_collected_within_the_hour() -> None:
    loop = VirtualLoop()
    first, second = CycleNode(), CycleNode()
    first.other, second.other = second, first
    alive = weakref.ref(first)
    heap = FrozenHeap(loop, clock=loop.time, cpu_clock=lambda: 0.0)
    heap.start()
    try:
        del first, second
        gc.collect()
        assert alive() is not None, "it is frozen"
        loop.run_until_complete(asyncio.sleep(WHOLE_EVERY_S + 2 * QUIET_S))
        assert alive() is None
    finally:
        heap.stop()
        loop.close()


def test_after_a_stop_collections_change_nothing() -> None:
    loop, thresholds = VirtualLoop(), gc.get_threshold()
    heap = FrozenHeap(loop)
    heap.start()
    heap.stop()
    assert heap.note not in gc.callbacks
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == thresholds
    loop.close()
