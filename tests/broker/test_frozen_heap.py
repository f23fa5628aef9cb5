"""The garbage collections that freeze new objects. Cycles among frozen objects are still collected later."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from semel_broker.frozen_heap import FULL, SLOW_S, WHOLE_EVERY_S, FrozenHeap


class CollectorCalls:
    """Records the calls of the collector."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def freeze(self) -> None:
        self.made.append("freeze")

    def unfreeze(self) -> None:
        self.made.append("unfreeze")


class HeapClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Collections:
    """Collections of a given duration, as `gc.callbacks` report them."""

    def __init__(self) -> None:
        self.calls, self.clock = CollectorCalls(), HeapClock()
        self.heap = FrozenHeap(self.calls, self.clock)
        self.heap.start()
        gc.callbacks.remove(self.heap.note)  # collections of the test process do not count
        assert self.calls.made == ["freeze"]
        self.calls.made.clear()

    def run(self, seconds: float, generation: int = FULL) -> list[str]:
        """The calls of the collector after one collection of this duration."""
        self.heap.note("start", {"generation": generation})
        self.clock.now_s += seconds
        self.heap.note("stop", {"generation": generation})
        made, self.calls.made = self.calls.made, []
        return made


@pytest.fixture
def collections() -> Iterator[Collections]:
    made = Collections()
    yield made
    made.heap.stop()


def test_only_a_slow_full_collection_freezes_its_survivors(collections: Collections) -> None:
    assert collections.run(SLOW_S / 2) == []
    assert collections.run(SLOW_S * 2, generation=1) == []
    assert collections.run(SLOW_S * 2) == ["freeze"]


def test_each_hour_one_collection_sees_all_objects_and_freezes_again(collections: Collections) -> None:
    collections.clock.now_s += WHOLE_EVERY_S
    assert collections.run(SLOW_S * 2, generation=1) == []
    assert collections.run(SLOW_S * 2) == ["unfreeze", "freeze"]
    assert collections.run(SLOW_S / 2) == []


class CycleNode:
    """A part of a cycle."""

    other: "CycleNode"


def test_a_cycle_that_was_frozen_is_collected_within_the_hour() -> None:
    clock = HeapClock()
    heap = FrozenHeap(clock=clock)
    first, second = CycleNode(), CycleNode()
    first.other, second.other = second, first
    alive = weakref.ref(first)
    gc.collect()
    heap.start()
    try:
        del first, second
        gc.collect()
        assert alive() is not None, "it is frozen"
        clock.now_s += WHOLE_EVERY_S
        gc.collect()
        assert alive() is None
    finally:
        heap.stop()


def test_after_a_stop_collections_change_nothing() -> None:
    heap = FrozenHeap()
    gc.collect()
    heap.start()
    heap.stop()
    assert heap.note not in gc.callbacks
    assert gc.get_freeze_count() == 0
