"""Topic changes in a cluster without clients: runs contain many of them, and a broker that misses one is found.

`test_control` runs the seeds that must be clean.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.records import TopicRecord
from semel_broker.cluster.store import Store
from semel_broker.cluster.writes import catch_up
from semel_broker.security import quota_store
from semel_broker.topics import dynamic_configs, topics
from semel_broker.topics.topics import Topics

from sim.faults import Fault
from sim.topic_control import TopicRun

TRIES_MAX = 40


def test_topics_come_and_go_and_are_moved() -> None:
    run = TopicRun(3)
    assert run.execute() == []
    kinds = [(told.key.partition("/")[0], told.value is not None) for told in run.store.told()]
    for happened in (("topics", True), ("topics", False), ("deletions", False), ("reassignments", False)):
        assert kinds.count(happened) > 10, happened


def test_a_broker_that_misses_deletions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Topics._start_removal
    missed = iter(range(1_000))

    def now_and_then(self: Topics, record: TopicRecord) -> None:
        if next(missed) % 50 != 49:
            start(self, record)

    monkeypatch.setattr(Topics, "_start_removal", now_and_then)
    assert any(TopicRun(seed).execute() for seed in range(TRIES_MAX))


def slow_moments() -> Iterator[Fault]:
    """Short times in which the store takes seconds for a write that it has received. Later ones are quick again."""
    for at_ms in range(500, 58_000, 1_500):
        yield Fault(at_ms=at_ms, kind="slow store", host="store", lasting_ms=300, args={"factor": 1_000})


def late(seed: int) -> list[str]:
    run = TopicRun(seed)
    run.faults = list(slow_moments())
    found = run.execute()
    assert run.operator.answers > 20
    return found


def test_no_request_is_carried_out_behind_a_newer_answer() -> None:
    assert late(5) == []


async def only_known_here(store: Store, feed: Feed, key: str) -> None:
    await catch_up(feed)


@pytest.mark.thorough
def test_an_answer_that_leaves_no_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mark, a topic comes into being that was answered not to exist."""
    for module in (topics, quota_store, dynamic_configs):
        monkeypatch.setattr(module, "stays_absent", only_known_here)
    assert any("when the operator was answered" in text for seed in range(5, TRIES_MAX) for text in late(seed))
