"""The group scenarios have no findings. `ablations/groups.py` shows that each rule finds its fault."""

from __future__ import annotations

import pytest

from sim.group_control import PARTITIONS, SCENES, GroupRun, OffsetModel, cooperative_rebalance

SEEDS_AT_ONCE = 6


@pytest.mark.parametrize("first", range(0, 18, SEEDS_AT_ONCE))
def test_nothing_is_found(first: int) -> None:
    found = {seed: GroupRun(seed).execute() for seed in range(first, first + SEEDS_AT_ONCE)}
    assert not any(found.values()), found


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(len(SCENES)):
        assert len({GroupRun(seed).judged().digest for _ in range(2)}) == 1


def test_members_die_amid_their_callbacks_and_all_partitions_have_owners_at_rest() -> None:
    runs = [GroupRun(seed) for seed in range(0, 12, len(SCENES))]
    assert all(run.topic_broker is cooperative_rebalance and run.execute() == [] for run in runs)
    assert any(run.faults for run in runs)
    assert all(sum(map(len, run.owned.values())) == PARTITIONS for run in runs)


def test_the_model_of_offsets_drops_what_was_deleted() -> None:
    model = OffsetModel()
    model.commit(0, 1)
    model.pending |= {0: 5, 1: 5, 2: 5}
    model.commit(2, 7)
    model.delete(1)
    model.end(commit=True)
    assert model.committed == {0: 5, 2: 7}
    model.pending |= {0: 9}
    model.end(commit=False)
    assert model.committed == {0: 5, 2: 7}
