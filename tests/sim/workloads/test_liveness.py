"""Patience: who stands still is told from who is slow."""

from __future__ import annotations

import pytest
from semel import TopicPartition

from sim.client import SimEdge
from sim.history import History
from sim.host import Host
from sim.workloads.base import ClientContext, FaultFreePhase
from sim.workloads.liveness import StallDetector, write_on
from sim.workloads.plan import ClientPlan
from sim.workloads.recording_producer import RecordingProducer
from sim.world import NS, World

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_of_which_nothing_comes_stands_still_whatever_comes_of_others() -> None:
    detector = StallDetector(patience_s=10)
    assert detector.stalled({HERE: (3, 9), THERE: (1, 9)}, 100) == {}
    assert detector.stalled({HERE: (3, 9), THERE: (2, 9)}, 110) == {}
    assert detector.stalled({HERE: (3, 9), THERE: (2, 9)}, 111) == {HERE: (3, 9)}


def test_one_that_goes_on_or_was_at_its_end_meanwhile_does_not_stand_still() -> None:
    detector = StallDetector(patience_s=10)
    assert detector.stalled({HERE: (3, 9), THERE: (5, 9)}, 100) == {}
    assert detector.stalled({HERE: (4, 9)}, 109) == {}
    assert detector.stalled({HERE: (4, 9), THERE: (5, 9)}, 118) == {}
    assert detector.stalled({HERE: (4, 9), THERE: (5, 9)}, 120) == {HERE: (4, 9)}


@pytest.mark.parametrize(("stored", "expected"), [(True, []), (False, ["shop cannot write any more"])])
def test_who_cannot_write_when_all_is_well_again_is_written_down(stored: bool, expected: list[str]) -> None:
    world, fault_free = World(seed=1), FaultFreePhase(has_begun=True)
    history = History(lambda: 0.0)
    client = ClientPlan(name="shop", role="writer", settings={"request_timeout_ms": 1_000})

    async def once() -> bool:
        return stored

    async def main(host: Host) -> None:
        context = ClientContext(
            edge=SimEdge(host), bootstrap_servers="broker:9092", history=history, fault_free=fault_free
        )
        await write_on(context, client, RecordingProducer(context, "shop", {}), once)

    world.host("shop").boot(main)
    world.run(60 * NS)
    world.close()
    assert (world.failures, fault_free.stalled) == ([], expected)
