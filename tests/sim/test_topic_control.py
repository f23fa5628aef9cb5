"""Topics that come and go: every broker has what is its own, and nothing else."""

from __future__ import annotations

import pytest
from semel_broker.known_topics import KnownTopics

from sim.topic_control import TopicRun

SEEDS = 12
TRIES_MAX = 40


@pytest.mark.parametrize("first", range(0, SEEDS, 4))
def test_nothing_is_found(first: int) -> None:
    found = {seed: TopicRun(seed).execute() for seed in range(first, first + 4)}
    assert not any(found.values()), found


def test_the_same_seed_is_the_same_run() -> None:
    digests = []
    for _ in range(2):
        run = TopicRun(7)
        assert run.execute() == []
        digests.append(run.world.digest())
    assert digests[0] == digests[1]


def test_topics_come_and_go_and_are_moved() -> None:
    run = TopicRun(3)
    assert run.execute() == []
    kinds = [(told.key.partition("/")[0], told.value is not None) for told in run.store.told()]
    for happened in (("topics", True), ("topics", False), ("deletions", False), ("reassignments", False)):
        assert kinds.count(happened) > 10, happened


def test_a_broker_that_misses_what_others_delete_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    start = KnownTopics._start_removal
    missed = iter(range(1_000))

    def now_and_then(self: KnownTopics, record: object) -> None:
        if next(missed) % 50 != 49:
            start(self, record)  # type: ignore[arg-type]

    monkeypatch.setattr(KnownTopics, "_start_removal", now_and_then)
    assert any(TopicRun(seed).execute() for seed in range(TRIES_MAX))
