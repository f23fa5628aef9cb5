"""Plans of rounds on one broker: a seed draws the same round each time, and each fault can be injected."""

from __future__ import annotations

import inspect

import msgspec

from faults.broker_fault_injector import BrokerFaultInjector
from faults.plan import APIS_OF, KINDS, draw
from faults.proxy import API_NAMES

SEEDS = range(300)


def test_a_seed_draws_the_same_round_each_time_and_each_seed_another() -> None:
    plans = {msgspec.json.encode(draw(seed, small_disk=True)) for seed in SEEDS}
    assert len(plans) == len(SEEDS)
    assert msgspec.json.encode(draw(7, small_disk=True)) == msgspec.json.encode(draw(7, small_disk=True))


def test_every_kind_of_fault_is_drawn_and_is_a_method_that_takes_what_is_drawn() -> None:
    faults = [fault for seed in SEEDS for fault in draw(seed, small_disk=True).faults]
    assert {fault.kind for fault in faults} == set(KINDS)
    for fault in faults:
        inspect.signature(getattr(BrokerFaultInjector, fault.kind.replace("-", "_"))).bind(None, **fault.args)


def test_every_round_has_a_writer_and_a_pipeline_and_no_two_workers_of_one_name() -> None:
    for seed in SEEDS:
        plan = draw(seed, small_disk=True)
        kinds = [worker.kind for worker in plan.workers]
        assert "write" in kinds
        assert "transform" in kinds
        names = [worker.name for worker in plan.workers]
        assert len(set(names)) == len(names)
        ids = [worker.transactional_id for worker in plan.workers if worker.transactional_id]
        assert len(set(ids)) == len(ids)


def test_no_round_fills_a_disk_where_there_is_no_small_one() -> None:
    assert any(draw(seed, small_disk=True).needs_small_disk for seed in SEEDS)
    assert not any(draw(seed, small_disk=False).needs_small_disk for seed in SEEDS)


def test_what_can_be_held_are_names_of_apis() -> None:
    assert {api for apis in APIS_OF.values() for api in apis} <= set(API_NAMES.values())
