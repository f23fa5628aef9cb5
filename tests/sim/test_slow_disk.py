"""A slow disk holds no turn of a broker's loop. The last tests show that a wait is found, and how it is named."""

from __future__ import annotations

from random import Random

import pytest
from semel_storage.disk import sync_pace
from support.tiers import tiered

from sim import alone, stalls
from sim.disk import SimDisk
from sim.plan import draw as draw_plan
from sim.run import run
from sim.slow_disk import ACTS, SlowDiskRun, draw

SEEDS, QUICK = 60, 6
SWARM_SEEDS = {1: (19, 58), 3: (37,)}
"""Seeds of `make sim` whose disks are slow for a while, by the number of brokers."""


@pytest.mark.proves("hanging-disk")
@pytest.mark.parametrize("seed", tiered(range(SEEDS), lambda seed: seed < QUICK))
def test_nothing_is_found(seed: int) -> None:
    assert SlowDiskRun(seed).execute() == []


def test_the_same_seed_is_the_same_run() -> None:
    assert len({SlowDiskRun(7).judged().digest for _ in range(2)}) == 1


def test_seeds_draw_every_act() -> None:
    assert {act.what for seed in range(40) for act in draw(Random(seed))} == {act.__name__ for act in ACTS}


@pytest.mark.parametrize(
    ("brokers", "seed"), [(brokers, seed) for brokers in SWARM_SEEDS for seed in SWARM_SEEDS[brokers]]
)
def test_seeds_of_the_swarm_have_slow_disks_and_nothing_is_found(brokers: int, seed: int) -> None:
    plan = draw_plan(seed, brokers=brokers)
    assert plan.has_slow_disks
    assert run(plan).ways == []


def test_a_wait_that_is_not_known_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut makes the broker sync the names of new segments at once."""
    monkeypatch.setattr(SimDisk, "sync_dir_later", SimDisk.sync_dir)
    found = "\n".join(SlowDiskRun(2).execute())
    assert "loop-waits-for-disk" in found
    assert "recovery._create < recovery._recovered < recovery.recover < log.Log.open" in found
    assert "bystander-waits" in found
    assert run(draw_plan(58)).names == [stalls.CHECKER]


def test_small_syncs_that_hold_the_loop_again_and_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut keeps the measure from ending them: see `SyncPace`."""
    monkeypatch.setattr(sync_pace.SyncPace, "is_quick", property(lambda self: True))
    monkeypatch.setattr(sync_pace.SyncPace, "is_quick_together", property(lambda self: True))
    assert any("loop-waits-for-disk" in each and "Flusher" in each for each in SlowDiskRun(10).execute())


def test_one_seed_has_a_transcript(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["sim.alone", "disks", "--seed", "1"])
    assert alone.main() == 0
    assert capsys.readouterr().out.endswith(": clean\n")
