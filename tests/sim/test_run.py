"""Runs: the same seed gives the same run everywhere, plans are data, faults take effect, failing plans shrink."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from random import Random

import msgspec
import pytest
from semel_storage.segments.segment import CorruptLog

from sim import shrink
from sim.broker import SimBroker
from sim.checkers import Anomaly
from sim.coverage import Coverage
from sim.faults import DISK_FAULTS, FAULTS, OPENING_FAULTS, RIGHTS_FAULTS, Fault
from sim.plan import RunPlan, draw
from sim.run import RunVerdict, run
from sim.trace import describe, replay
from sim.workloads import CONSUMER_CHURN, CONSUMER_PIPELINE, CONSUMERS, WORKLOADS
from sim.world import SimWorld

SEEDS = (5, 13)
DIGESTS = """
from sim.plan import draw
from sim.run import run
for seed in SEEDS:
    print(run(draw(seed)).digest)
"""


def digests_elsewhere(hash_seed: str, seeds: tuple[int, ...]) -> list[str]:
    code = DIGESTS.replace("SEEDS", repr(seeds))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_seed_is_the_same_run_in_every_process_and_under_every_hash_seed() -> None:
    here = [run(draw(seed)).digest for seed in SEEDS]
    assert len({*here}) == len(SEEDS)
    assert digests_elsewhere("1", SEEDS) == here
    assert digests_elsewhere("4242", tuple(reversed(SEEDS))) == here[::-1]


def test_a_listener_does_not_change_the_run() -> None:
    for seed in SEEDS:
        verdict, _, transcript = replay(draw(seed))
        assert verdict.digest == run(draw(seed)).digest
        assert len(transcript.lines) > 100


def test_a_plan_is_data() -> None:
    for seed in range(100):
        plan = draw(seed)
        again = msgspec.json.decode(msgspec.json.encode(plan), type=RunPlan)
        assert msgspec.to_builtins(again) == msgspec.to_builtins(plan)
        assert msgspec.to_builtins(draw(seed)) == msgspec.to_builtins(plan)
        assert any(line.startswith("workload") for line in describe(plan))


ALL_FAULTS = {**FAULTS, **RIGHTS_FAULTS, **DISK_FAULTS, **OPENING_FAULTS}


def test_every_workload_and_every_fault_is_drawn_and_not_all_at_once() -> None:
    plans = [draw(seed) for seed in range(300)]
    assert {workload.kind for plan in plans for workload in plan.workloads} == {*WORKLOADS}
    on = [{fault.kind for fault in plan.faults} for plan in plans]
    assert set().union(*on) == {*ALL_FAULTS}
    assert min(map(len, on)) == 0
    assert max(map(len, on)) < len(ALL_FAULTS)
    assert {plan.finale for plan in plans} == {"none", "kill", "power loss", "terminate"}


def test_some_seeds_have_a_group_of_the_consumer_protocol_beside_the_other_workloads() -> None:
    plans = [draw(seed) for seed in range(300)]
    with_it = [plan for plan in plans if plan.has_consumers]
    drawn = Counter(plan.workloads[-1].kind for plan in with_it)
    assert 5 < drawn[CONSUMER_PIPELINE] < 25, "a twentieth"
    assert 5 < drawn[CONSUMER_CHURN] < 25, "a twentieth"
    assert 15 < drawn[CONSUMERS] < 45, "a tenth"
    assert all(len(plan.workloads) > 1 for plan in with_it)
    assert not any(draw(plan.seed, ("churn",)).has_consumers for plan in with_it)


def test_without_fsync_no_fault_is_drawn_that_may_lose_acknowledged_records() -> None:
    plans = [plan for plan in map(draw, range(300)) if plan.settings.get("durability") == "os"]
    assert plans
    for plan in plans:
        assert not any(ALL_FAULTS[fault.kind].needs_fsync for fault in plan.faults)
        assert plan.finale != "power loss"


def calm(kind: str = "plain") -> RunPlan:
    rng = Random(1)
    return RunPlan(seed=1, workloads=[WORKLOADS[kind].draw(rng, "a-")])


WORDS = {
    "kill broker": "killed",
    "kill client": "killed",
    "power loss": "power loss",
    "kill amid changes": "killed amid",
    "power loss amid changes": "power loss amid",
    "terminate broker": "stopped",
    "pause broker": "paused",
    "pause client": "paused",
    "clock": "clock set by",
    "cut": "cut off from",
    "reset": "reset",
    "slow link": "farther from",
    "hold": "held for",
    "late": "held until",
    "slow disk": "fault:",
    "full disk": "failed",
    "damage": "damage:",
    "failing disk": "failed",
}
"""The text in a transcript that shows a fault of this kind."""


@pytest.mark.parametrize("kind", list(FAULTS))
def test_each_kind_of_fault_takes_effect_and_is_survived(kind: str) -> None:
    plan = calm()
    rng = Random(kind)
    meets = FAULTS[kind].meets
    plan.faults = [
        Fault(
            at_ms=at_ms,
            kind=kind,
            host=plan.clients[0] if meets != "broker" else "broker",
            lasting_ms=max(1_000, FAULTS[kind].lasting_ms[0]) if FAULTS[kind].lasting_ms[1] else 0,
            args={
                **FAULTS[kind].args(rng, "writer"),
                **({"api_key": 0, "by_ms": 500, "answers": 0} if kind in ("hold", "late") else {}),
            },
        )
        for at_ms in range(500, 9_000, 2_500)
    ]
    verdict, _, transcript = replay(plan)
    assert verdict.is_clean, (verdict.anomalies, verdict.failures)
    assert any(WORDS[kind] in line for line in transcript.text())


def test_a_failing_plan_shrinks_to_what_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = calm()
    plan.faults = [
        Fault(at_ms=number * 100, kind="reset" if number != 17 else "cut", host=plan.clients[0]) for number in range(40)
    ]
    wanted = plan.workloads[0].clients[0].ops[7]

    def judge(tried: RunPlan) -> RunVerdict:
        operations = [op for workload in tried.workloads for client in workload.clients for op in client.ops]
        broken = any(fault.kind == "cut" for fault in tried.faults) and wanted in operations
        return RunVerdict(seed=1, digest="", anomalies=[Anomaly("lost-write", "")] if broken else [])

    monkeypatch.setattr(shrink, "run", judge)
    small = shrink.Shrinker(plan, ["lost-write"], lambda text: None).shrink()
    assert [fault.kind for fault in small.faults] == ["cut"]
    assert [client.ops for workload in small.workloads for client in workload.clients] == [[wanted]]
    assert small.broker == {}


def test_shrinking_keeps_to_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def judge(tried: RunPlan) -> RunVerdict:
        calls.append(1)
        return RunVerdict(seed=1, digest="")

    monkeypatch.setattr(shrink, "run", judge)
    shrink.Shrinker(calm(), ["lost-write"], lambda text: None, runs_max=7).shrink()
    assert len(calls) == 7


@pytest.mark.thorough
def test_the_memory_of_a_run_is_freed() -> None:
    """Also the memory of brokers that were killed while requests waited; these refer to each other."""
    for seed in (1, 12):
        counts = []
        for _ in range(3):
            run(draw(seed))
            gc.collect()
            counts.append(len(gc.get_objects()))
        assert counts[2] - counts[1] < 100


def test_events_of_runs_are_counted_and_added_up() -> None:
    plan = calm("transactional")
    plan.faults = [Fault(at_ms=2_000, kind="kill broker", host="broker", lasting_ms=10)]
    coverage = Coverage()
    for _ in range(2):
        coverage.add(run(plan).tally)
    text = "\n".join(coverage.lines())
    assert coverage.runs == 2
    assert coverage.times["fault/kill broker"] == coverage.within["fault/kill broker"] == 2
    assert coverage.times["came/transactions committed"] > 10
    assert "kill broker" in text


def test_a_start_refused_without_a_cause_fails_the_run() -> None:
    world = SimWorld(1)
    broker = SimBroker(world.host("broker"))
    disk, path = broker.host.disk, "data/t-0/00000000000000000000.log"
    disk.put(path, b"old")
    with pytest.raises(CorruptLog):
        broker._repair(CorruptLog(path, 0, "damaged"))
    disk.stale = {path: b"zeros"}
    broker._repair(CorruptLog(path, 0, "damaged"))
    assert disk.read_bytes(path) == b"zeros"
    broker.damaged = {path: b"before"}
    broker._repair(CorruptLog(path, 0, "damaged"))
    assert disk.read_bytes(path) == b"before"
    with pytest.raises(CorruptLog):
        broker._repair(CorruptLog(path, 0, "damaged"))
    world.close()
