"""Topic changes in a cluster without clients: runs contain many of them, and a broker that misses one is found.

`test_control` runs the seeds that must be clean.
"""

from __future__ import annotations

import pytest
from semel_broker.cluster.records import TopicRecord
from semel_broker.topics.topics import Topics

from sim.topic_control import SlowStoreRun, TopicRun

pytestmark = pytest.mark.proves("late-change-of-a-topic")

TRIES_MAX = 40


def test_topics_come_and_go_and_are_moved() -> None:
    run = TopicRun(3)
    assert run.execute() == []
    kinds = [(told.key.partition("/")[0], told.value is not None) for told in run.store.told()]
    for happened in (("topics", True), ("topics", False), ("deletions", False), ("reassignments", False)):
        assert kinds.count(happened) > 10, happened


@pytest.mark.parametrize("seed", [8, 35, 41, 56])
def test_a_stop_amid_removals_and_directories_that_were_never_durable(seed: int) -> None:
    assert TopicRun(seed).execute() == []


def test_a_broker_that_misses_deletions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Topics._start_removal
    missed = iter(range(1_000))

    def now_and_then(self: Topics, record: TopicRecord) -> None:
        if next(missed) % 50 != 49:
            start(self, record)

    monkeypatch.setattr(Topics, "_start_removal", now_and_then)
    assert any(TopicRun(seed).execute() for seed in range(TRIES_MAX))


def test_no_request_is_carried_out_behind_a_newer_answer() -> None:
    run = SlowStoreRun(5)
    assert run.execute() == []
    assert run.operator.answers > 20
