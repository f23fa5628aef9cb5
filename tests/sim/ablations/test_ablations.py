"""Every safeguard that some plan has been seen to miss is still missed by it, and nothing is found while it is there.

After a change of the product a plan may take another course and say nothing any more: then some seeds are tried. When
these do not either, `make ablations NAME='...' WRITE=1` looks for others.
"""

from __future__ import annotations

import pytest

from sim.ablations import ABLATIONS, record
from sim.ablations.__main__ import CAUGHT_SHARE_MIN
from sim.ablations.ablation import Ablation, Seam, without
from sim.ablations.search import compare, find, plan_of

TRIED_MORE = 40
CAUGHT_MIN = 30

FINDINGS = record.load()
CAUGHT = [name for name, finding in FINDINGS.items() if finding.is_caught]


def is_caught(name: str) -> bool:
    ablation, finding = ABLATIONS[name], FINDINGS[name]
    plan = finding.plan or plan_of(ablation, finding.seed)
    told = {*finding.caught_by}  # by others it may be caught for not fitting the product any more
    return bool(told & {*compare(ablation, plan).names} or told & {*find(name, seeds_max=TRIED_MORE).caught_by})


class TestFirstHalf:
    @pytest.mark.parametrize("name", CAUGHT[0::2])
    def test_without_it_something_is_found(self, name: str) -> None:
        assert is_caught(name), f"make ablations NAME={name!r} WRITE=1"


class TestSecondHalf:
    @pytest.mark.parametrize("name", CAUGHT[1::2])
    def test_without_it_something_is_found(self, name: str) -> None:
        assert is_caught(name), f"make ablations NAME={name!r} WRITE=1"


def test_each_that_is_needed_has_been_looked_for_and_nearly_all_are_caught() -> None:
    needed = [name for name, ablation in ABLATIONS.items() if not ablation.needless]
    assert list(FINDINGS) == needed, "make ablations WRITE=1"
    assert len(CAUGHT) >= max(CAUGHT_MIN, CAUGHT_SHARE_MIN * len(needed))


def test_the_table_for_people_is_that_of_the_record() -> None:
    assert record.DOCS.read_text() == record.docs(FINDINGS), "make ablations WRITE=1"


class Thing:
    word = "as it was"


def test_a_cut_is_undone() -> None:
    def cut(seam: Seam) -> None:
        seam.replace(Thing, "word", "changed")
        seam.replace(Thing, "word", "changed again")

    with without(Ablation("a", "", cut)):
        assert Thing.word == "changed again"
    assert Thing.word == "as it was"


def test_a_cut_that_misses_is_told() -> None:
    class Heir(Thing):
        pass

    for owner, name in ((Thing, "wrod"), (Heir, "word")):
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
