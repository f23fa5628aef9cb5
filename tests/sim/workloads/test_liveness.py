"""Clients that make no progress are found, and slow clients are not."""

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
from sim.world import NS, SimWorld

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_without_progress_is_stalled_beside_others_with_progress() -> None:
    detector = StallDetector(limit_s=10)
    assert detector.stalled({HERE: (3, 9), THERE: (1, 9)}, 100) == {}
    assert detector.stalled({HERE: (3, 9), THERE: (2, 9)}, 110) == {}
    assert detector.stalled({HERE: (3, 9), THERE: (2, 9)}, 111) == {HERE: (3, 9)}


def test_a_partition_with_progress_or_at_its_end_is_not_stalled() -> None:
    detector = StallDetector(limit_s=10)
    assert detector.stalled({HERE: (3, 9), THERE: (5, 9)}, 100) == {}
    assert detector.stalled({HERE: (4, 9)}, 109) == {}
    assert detector.stalled({HERE: (4, 9), THERE: (5, 9)}, 118) == {}
    assert detector.stalled({HERE: (4, 9), THERE: (5, 9)}, 120) == {HERE: (4, 9)}


@pytest.mark.parametrize(("stored", "expected"), [(True, []), (False, ["shop cannot write any more"])])
def test_a_producer_that_cannot_write_after_the_faults_is_recorded(stored: bool, expected: list[str]) -> None:
    world, fault_free = SimWorld(seed=1), FaultFreePhase(has_begun=True)
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
