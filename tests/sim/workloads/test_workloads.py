"""Workloads: plans are data, a part of a plan is still a plan, and a run without faults is clean."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from sim.checkers import HistoryIndex, check_all
from sim.checkers.history_index import TransactionOutcome
from sim.disk import DiskWeather
from sim.network import NetworkWeather
from sim.plan import RunPlan
from sim.run import SimRun
from sim.workloads import WORKLOADS
from sim.workloads.plan import Op, Script, WorkloadPlan


def calm(plan: WorkloadPlan, seed: int = 1) -> SimRun:
    """A whole run of one workload without faults."""
    run = SimRun(RunPlan(seed=seed, workloads=[plan], network=NetworkWeather(), disk=DiskWeather()))
    run.execute()
    assert not run.world.failures, run.world.failures[0]
    run.world.close()
    return run


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_seed_draws_the_same_plan_every_time_and_it_is_data(name: str) -> None:
    plan = WORKLOADS[name].draw(Random(7), "a-")
    assert plan == WORKLOADS[name].draw(Random(7), "a-")
    assert plan != WORKLOADS[name].draw(Random(8), "a-")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=WorkloadPlan) == plan


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_in_a_calm_world_everything_is_acknowledged_and_nothing_is_found(name: str) -> None:
    run = calm(WORKLOADS[name].draw(Random(1), "a-"))
    assert check_all(run.history, run.final) == []
    facts = HistoryIndex(run.history, run.final)
    assert sum(write.is_acknowledged for write in facts.writes.values()) > 10
    assert sum(len(end.uncommitted) for end in run.final.partitions.values()) > 10


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_part_of_a_plan_is_a_plan(name: str) -> None:
    plan, rng = WORKLOADS[name].draw(Random(2), "a-"), Random(3)
    plan.clients = [client for client in plan.clients if rng.random() < 0.6]
    for client in plan.clients:
        client.ops = [op for op in client.ops if rng.random() < 0.3]
    run = calm(plan)
    assert check_all(run.history, run.final) == []


def test_transactions_commit_and_abort_and_read_what_others_have_committed() -> None:
    story_of = calm(WORKLOADS["transactional"].draw(Random(4), "a-"))
    txns = HistoryIndex(story_of.history, story_of.final).txns.values()
    assert {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED} <= {txn.outcome for txn in txns}
    assert any(poll.values for txn in txns for poll in txn.polls)


def test_a_pipeline_makes_an_output_of_every_input() -> None:
    run = calm(WORKLOADS["pipeline"].draw(Random(5), "a-"))
    counts = {"a-in": 0, "a-out": 0}
    for (topic, _), end in run.final.partitions.items():
        counts[topic] += len(end.committed)
    assert counts["a-in"] == counts["a-out"] > 0


def test_a_driver_commits_every_batch_that_was_planned_and_each_row_of_it_once() -> None:
    run = calm(WORKLOADS["groups"].draw(Random(6), "a-"))
    facts = HistoryIndex(run.history, run.final)
    planned = sorted(row for batch in facts.planned for row in batch.rows)
    visible = [row.value for end in run.final.partitions.values() for row in end.committed]
    assert len(planned) > 20
    assert sorted(facts.by_value[value].sent.made_from or "" for value in visible if value is not None) == planned


def test_an_operation_is_begun_once_however_often_its_client_is_killed() -> None:
    script = Script([Op(kind="a"), Op(kind="b")])
    begun = [script.next(), script.next(), script.next()]
    assert [op.kind for op in begun if op is not None] == ["a", "b"]
    assert script.is_done
