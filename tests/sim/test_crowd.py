"""A crowd that overloads the broker does not delay a bystander. `ablations/fairness.py` shows that delays are found."""

from __future__ import annotations

from random import Random

import pytest
from support.tiers import tiered

from sim import alone
from sim.crowd import REQUESTS, CrowdRun, draw
from sim.crowd_members import KINDS, CrowdMember

SEEDS_AT_ONCE = 4
QUICK = 4


@pytest.mark.proves("one-client-blocks-others")
@pytest.mark.parametrize("first", tiered(range(0, 12, SEEDS_AT_ONCE), lambda first: first < QUICK))
def test_nothing_is_found(first: int) -> None:
    found = {seed: CrowdRun(seed).execute() for seed in range(first, first + SEEDS_AT_ONCE)}
    assert not any(found.values()), found


def test_the_same_seed_is_the_same_run() -> None:
    assert len({CrowdRun(4).judged().digest for _ in range(2)}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_bystander_is_served_beside_each_kind_of_member(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.crowd.draw", lambda rng: [CrowdMember("crowd-1", kind) for _ in range(8)])
    run = CrowdRun(1)
    assert run.execute() == []
    assert {name for name, _ in run.waits} == {name for name, _ in REQUESTS}


def test_seeds_draw_every_kind() -> None:
    assert {member.kind for seed in range(40) for member in draw(Random(seed))} == set(KINDS)


def test_one_seed_has_a_transcript(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["sim.alone", "crowd", "--seed", "6"])
    assert alone.main() == 0
    told = capsys.readouterr().out
    assert "bystander  large Produce answered after" in told
    assert told.endswith(": clean\n")
