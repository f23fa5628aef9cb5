"""Patience: who stands still is told from who is slow."""

from __future__ import annotations

import pytest
from semel import TopicPartition

from sim.client import SimEdge
from sim.history import History
from sim.host import Host
from sim.workloads.base import Calm, Desk
from sim.workloads.patience import Watch, write_on
from sim.workloads.pen import Pen
from sim.workloads.plan import ClientPlan
from sim.world import NS, World

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_of_which_nothing_comes_stands_still_whatever_comes_of_others() -> None:
    watch = Watch(patience_s=10)
    assert watch.standing({HERE: (3, 9), THERE: (1, 9)}, 100) == {}
    assert watch.standing({HERE: (3, 9), THERE: (2, 9)}, 110) == {}
    assert watch.standing({HERE: (3, 9), THERE: (2, 9)}, 111) == {HERE: (3, 9)}


def test_one_that_goes_on_or_was_at_its_end_meanwhile_does_not_stand_still() -> None:
    watch = Watch(patience_s=10)
    assert watch.standing({HERE: (3, 9), THERE: (5, 9)}, 100) == {}
    assert watch.standing({HERE: (4, 9)}, 109) == {}
    assert watch.standing({HERE: (4, 9), THERE: (5, 9)}, 118) == {}
    assert watch.standing({HERE: (4, 9), THERE: (5, 9)}, 120) == {HERE: (4, 9)}


@pytest.mark.parametrize(("stored", "expected"), [(True, []), (False, ["shop cannot write any more"])])
def test_who_cannot_write_when_all_is_well_again_is_written_down(stored: bool, expected: list[str]) -> None:
    world, calm = World(seed=1), Calm(has_come=True)
    history = History(lambda: 0.0)
    client = ClientPlan(name="shop", role="writer", settings={"request_timeout_ms": 1_000})

    async def once() -> bool:
        return stored

    async def main(host: Host) -> None:
        desk = Desk(edge=SimEdge(host), bootstrap_servers="broker:9092", history=history, calm=calm)
        await write_on(desk, client, Pen(desk, "shop", {}), once)

    world.host("shop").boot(main)
    world.run(60 * NS)
    world.close()
    assert (world.failures, calm.standing) == ([], expected)
