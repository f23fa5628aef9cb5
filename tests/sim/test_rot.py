"""Rotten bits: a reader gets the same records as before, or an error that says where."""

from __future__ import annotations

from random import Random

import pytest

from sim.plan import RunPlan
from sim.run import execute
from sim.workloads import WORKLOADS


def rotting(seed: int, bits: int) -> RunPlan:
    plan = RunPlan(seed=seed, workloads=[WORKLOADS["idempotent"].draw(Random(seed), "a-")], rot=bits)
    plan.broker = {"log.segment.bytes": 2_048, "log.index.interval.bytes": 256}
    return plan


@pytest.mark.proves("reader-at-a-damaged-header")
@pytest.mark.parametrize("bits", [1, 4, 40])
def test_readers_get_what_was_there_or_an_error_and_all_else(bits: int) -> None:
    errors = 0
    for seed in range(4):
        verdict, executed = execute(rotting(seed, bits))
        assert verdict.is_clean, (verdict.anomalies, verdict.failures)
        assert executed.rot is not None
        assert executed.rot.hit
        errors += executed.rot.errors
    assert errors > 0


def test_a_record_that_was_not_there_before_is_found() -> None:
    _, executed = execute(rotting(1, 1))
    rot = executed.rot
    assert rot is not None
    assert list(rot.found()) == []
    (place,) = rot.hit
    rows = rot.final.partitions[place].uncommitted
    untouched = next(at for at, row in enumerate(rows) if row.offset not in rot.hit[place])
    del rows[untouched]
    assert [anomaly.checker for anomaly in rot.found()] == ["rotten-read"]
