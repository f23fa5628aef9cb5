"""Plans of rounds on three brokers: a seed draws the same round each time, and each fault can be injected."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from faults.cluster_fault_injector import ClusterFaultInjector
from faults.cluster_plan import KINDS, NEEDS_NAMESPACES, SERIAL, draw_cluster

SEEDS = range(200)


def test_a_seed_draws_the_same_round_each_time_and_each_seed_another() -> None:
    plans = {msgspec.json.encode(draw_cluster(seed, namespaces=True)) for seed in SEEDS}
    assert len(plans) == len(SEEDS)
    assert msgspec.json.encode(draw_cluster(7, namespaces=True)) == msgspec.json.encode(
        draw_cluster(7, namespaces=True)
    )


def test_every_kind_of_fault_is_drawn_and_is_a_method_that_takes_what_is_drawn() -> None:
    faults = [fault for seed in SEEDS for fault in draw_cluster(seed, namespaces=True).faults]
    assert {fault.kind for fault in faults} == set(KINDS)
    assert set(SERIAL) | set(NEEDS_NAMESPACES) <= set(KINDS)
    for fault in faults:
        inspect.signature(getattr(ClusterFaultInjector, fault.kind.replace("-", "_"))).bind(None, **fault.args)


def test_no_round_cuts_the_network_where_that_cannot_be_done() -> None:
    for seed in SEEDS:
        assert not {fault.kind for fault in draw_cluster(seed, namespaces=False).faults} & set(NEEDS_NAMESPACES)


def test_every_round_writes_and_has_a_pipeline() -> None:
    for seed in SEEDS:
        plan = draw_cluster(seed, namespaces=True)
        assert {"write", "transform"} <= {worker.kind for worker in plan.workers}
        assert plan.brokers == 3
