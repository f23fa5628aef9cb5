"""The replica that a leader proposes to a consumer (KIP-392)."""

from __future__ import annotations

import pytest
from semel_broker.partitions.replicas import LEADER, Replicas, preferred_replica

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def replicas(isr: list[int], offsets: dict[int, int]) -> Replicas:
    made = Replicas(1, [1, 2, 3, 4], isr, epoch_start_offset=0, now_ms=0)
    for replica, offset in offsets.items():
        assert made.note_fetch(replica, 1, offset, now_ms=0, end_offset=100)
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "preferred"),
    [
        ("", 10, LEADER),
        ("a", 10, LEADER),
        ("b", 10, 3),
        ("b", 60, 3),
        ("b", 61, LEADER),
        ("c", 10, LEADER),
        ("elsewhere", 10, LEADER),
    ],
    ids=["no rack", "the leader's", "two replicas", "one has it", "none has it", "not in sync", "no replica there"],
)
def test_the_replica_in_the_rack_with_the_most_records_is_preferred(rack: str, offset: int, preferred: int) -> None:
    found = replicas([1, 2, 3], {2: 50, 3: 60, 4: 70})
    assert preferred_replica(found, RACKS, rack, offset) == preferred


def test_a_replica_is_not_preferred_while_its_offset_or_its_broker_is_not_known() -> None:
    found = replicas([1, 2], {})
    assert preferred_replica(found, RACKS, "b", 0) == LEADER
    found = replicas([1, 2], {2: 5})
    assert preferred_replica(found, {1: "a"}, "b", 0) == LEADER
    assert preferred_replica(found, RACKS, "b", 5) == 2
