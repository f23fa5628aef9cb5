"""Each caught safeguard is caught again: on its plan a checker fires without the safeguard, and none fires with it.

After a change of the product a plan may run otherwise, and then no checker fires. The plan is stale: the test runs
some seeds anew, and fails if they show nothing, too. `make ablations ARGS=--stale WRITE=1` searches for new plans.
`make test` runs one in ten, of those that are quick.
"""

from __future__ import annotations

import pytest
from support.tiers import tiered

from sim.ablations import ABLATIONS, record
from sim.ablations.__main__ import CAUGHT_SHARE_MIN
from sim.ablations.ablation import Ablation, Seam, without
from sim.ablations.search import find, fires

CAUGHT_MIN = 30
QUICK = 10
RUNS_AGAIN_MIN, RUNS_AGAIN_MAX = 30, 150
"""Runs without a safeguard whose plan is stale: three times as many as it took once, within these bounds."""
SLOW = {"refused batches come first", "recovered bytes are synced", "atomic replacement", "joining replicas count"}
"""Their runs take about ten seconds of CPU and more."""

FINDINGS = record.load()
CAUGHT = [name for name, finding in FINDINGS.items() if finding.is_caught]


def is_caught(name: str) -> bool:
    finding = FINDINGS[name]
    return fires(finding) or find(name, runs_max=min(RUNS_AGAIN_MAX, 3 * finding.runs + RUNS_AGAIN_MIN)).is_caught


@pytest.mark.timeout(600)  # a stale plan is searched for again
@pytest.mark.parametrize("name", tiered(CAUGHT, lambda name: CAUGHT.index(name) % QUICK == 0 and name not in SLOW))
def test_a_checker_fires_without_the_safeguard(name: str) -> None:
    assert is_caught(name), f"no checker fires: make ablations NAME={name!r} WRITE=1"


def test_each_needed_safeguard_was_searched_for_and_nearly_all_are_caught() -> None:
    needed = [name for name, ablation in ABLATIONS.items() if not ablation.needless]
    assert list(FINDINGS) == needed, "make ablations WRITE=1"
    assert len(CAUGHT) >= max(CAUGHT_MIN, CAUGHT_SHARE_MIN * len(needed))


def test_the_tables_have_each_safeguard() -> None:
    tables = record.part()
    for name, ablation in ABLATIONS.items():
        assert f"\n| {name} | {ablation.protects} | " in tables


class ReplacedClass:
    word = "as it was"


def test_a_cut_is_undone() -> None:
    def cut(seam: Seam) -> None:
        seam.replace(ReplacedClass, "word", "changed")
        seam.replace(ReplacedClass, "word", "changed again")

    with without(Ablation("a", "", cut)):
        assert ReplacedClass.word == "changed again"
    assert ReplacedClass.word == "as it was"


def test_a_cut_without_its_target_is_an_error() -> None:
    class Heir(ReplacedClass):
        pass

    for owner, name in ((ReplacedClass, "wrod"), (Heir, "word")):
        with (
            pytest.raises(AssertionError, match="out of date"),
            without(
                Ablation("a", "", lambda seam, owner=owner, name=name: seam.replace(owner, name, ""))  # type: ignore[misc]
            ),
        ):
            pass


def test_every_cut_finds_its_place() -> None:
    for ablation in ABLATIONS.values():
        with without(ablation):
            pass
