"""Faults of several brokers: how they are drawn, and what they do."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from semel import Admin
from semel_broker.partitions.partition import Partition
from semel_storage.producers.producer_table import ProducerTable

from sim import faults
from sim.broker import LEFT_LOGS_TOGETHER, OPENED_AT_START, SimBroker
from sim.client import SimEdge
from sim.cluster import NAMES_OF, STORE, is_decided
from sim.cluster_faults import CLUSTER_FAULTS
from sim.faults import KINDS, OPENING_FAULTS, WHICHEVER, Fault, FaultTargets
from sim.plan import RunPlan, draw
from sim.store import SimStore
from sim.world import NS, SimWorld

BROKERS = NAMES_OF[3]
SEEDS = 120


def targets(seed: int = 1) -> tuple[FaultTargets, list[str]]:
    """Three brokers without a common cluster, a store, and the lines of the transcript."""
    lines: list[str] = []
    world = SimWorld(seed, lambda now_ns, host, text: lines.append(f"{host}: {text}"))
    brokers = {name: SimBroker(world.host(name)) for name in BROKERS}
    store = SimStore(world.host(STORE))
    store.boot()
    for broker in brokers.values():
        broker.boot()
    assert world.run(10 * NS, lambda: all(broker.serves for broker in brokers.values()))
    return FaultTargets(world, brokers, lambda name: None, store), lines


def test_an_open_transaction_whose_beginning_is_deleted_is_not_decided() -> None:
    producers = ProducerTable()
    partition = SimpleNamespace(
        last_stable_offset=9, high_watermark=9, is_open=True, log=SimpleNamespace(producers=producers)
    )
    assert is_decided(cast(Partition, partition))
    producers.transactions.began(5, producer_id=1)
    assert not is_decided(cast(Partition, partition))
    producers.transactions.ended(5, marker_offset=8)
    assert not is_decided(cast(Partition, partition)), "the marker may not be committed"
    producers.transactions.first_unstable_offset(9)
    assert is_decided(cast(Partition, partition))
    partition.last_stable_offset = 8
    assert not is_decided(cast(Partition, partition))


def test_plans_for_several_brokers_are_data_and_begin_as_those_for_one() -> None:
    for seed in range(SEEDS):
        plan, alone = draw(seed, brokers=3), draw(seed)
        again = msgspec.json.decode(msgspec.json.encode(plan), type=RunPlan)
        assert msgspec.to_builtins(again) == msgspec.to_builtins(plan)
        assert msgspec.to_builtins(plan.workloads) == msgspec.to_builtins(alone.workloads)
        late = {OPENED_AT_START, LEFT_LOGS_TOGETHER}  # of one broker alone: see `open_late`
        assert {(name, value) for name, value in alone.settings.items() if name not in late} <= plan.settings.items()
        assert all(fault.host in plan.hosts for fault in plan.faults)


def test_every_fault_is_drawn_for_every_broker_and_the_store() -> None:
    drawn = [fault for seed in range(SEEDS) for fault in draw(seed, brokers=3).faults]
    assert {fault.kind for fault in drawn} == {*KINDS}.difference(OPENING_FAULTS)
    assert {*BROKERS, STORE, WHICHEVER} <= {fault.host for fault in drawn}
    assert all(fault.waits for fault in drawn if fault.host == WHICHEVER)


WORDS = {
    "cut peers": "cut off from",
    "reset peers": "reset",
    "slow peers": "farther from",
    "kill some": "killed",
    "power loss of some": "power loss",
    "kill by turns": "killed",
    "power loss by turns": "power loss",
    "store down": "store: killed",
    "store paused": "store: paused",
    "slow store": "fault:",
    "store forgets": "store: compacted",
}
"""The text in a transcript that shows a fault of this kind."""


@pytest.mark.parametrize("kind", list(CLUSTER_FAULTS))
def test_each_kind_of_fault_takes_effect_and_ends(kind: str) -> None:
    set_up, lines = targets()
    assert set_up.store is not None
    host = STORE if CLUSTER_FAULTS[kind].meets == "store" else BROKERS[0]
    args = {**CLUSTER_FAULTS[kind].args(Random(1), ""), **({"dark": 0} if kind == "store down" else {})}
    faults.schedule([Fault(at_ms=500, kind=kind, host=host, lasting_ms=1_000, args=args)], set_up)
    world = set_up.world
    world.run(world.now_ns + NS)
    assert any(WORDS[kind] in line for line in lines)
    world.run(world.now_ns + 40 * NS)
    assert all(broker.serves for broker in set_up.brokers.values())
    assert set_up.store.host.is_running
    assert set_up.store.slowdown == 1.0
    assert not world.network._cut
    assert not any(world.network._slow.values())
    world.close()


def test_heal_ends_every_fault_that_is_in_progress() -> None:
    set_up, _ = targets()
    rng = Random(2)
    planned = [
        Fault(at_ms=100, kind=kind, host=STORE if each.meets == "store" else BROKERS[1], lasting_ms=99_000,
              args=each.args(rng, ""))
        for kind, each in CLUSTER_FAULTS.items()
    ]  # fmt: skip
    faults.schedule(planned, set_up)
    world = set_up.world
    world.run(world.now_ns + NS)
    faults.heal(set_up)
    world.run(world.now_ns + 20 * NS)
    assert set_up.store is not None
    assert all(broker.serves for broker in set_up.brokers.values())
    assert set_up.store.host.is_running
    assert set_up.store.slowdown == 1.0
    world.close()


def test_a_fault_that_waits_for_a_moment_meets_its_broker_once() -> None:
    set_up, lines = targets()
    fault = Fault(at_ms=0, kind="kill broker", host=WHICHEVER, lasting_ms=100, moment="serves")
    faults.schedule([fault], set_up)
    world = set_up.world
    world.run(world.now_ns + NS)
    set_up.brokers["broker-2"].terminate()
    world.run(world.now_ns + 20 * NS)
    assert [line.partition(":")[0] for line in lines if "fault:" in line] == ["broker-2"]
    set_up.brokers["broker-3"].terminate()
    world.run(world.now_ns + 20 * NS)
    assert sum("fault:" in line for line in lines) == 1
    world.close()


def test_a_fault_that_waits_for_a_request_meets_the_broker_that_gets_it() -> None:
    set_up, lines = targets()
    world = set_up.world
    world.network.watching = True
    faults.schedule([Fault(at_ms=0, kind="pause broker", host=WHICHEVER, lasting_ms=100, aim=18)], set_up)
    world.run(world.now_ns + NS)

    async def ask(host: object) -> None:
        async with Admin(bootstrap_servers="broker-3:9092", edge=SimEdge(asker)) as admin:
            await admin.list_topics()

    asker = world.host("asker")
    asker.boot(ask)
    assert world.run(world.now_ns + 20 * NS, lambda: not asker.is_running)
    assert [line for line in lines if line.endswith("paused")] == ["broker-3: paused"]
    world.close()
