"""Each fact of docs/data/proven.toml has a test, each mark names a fact, and no test of a trouble is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sim.ablations import ABLATIONS

from tools.website.made import proven
from tools.website.made.proven import SECURITY, TESTS, facts, proofs

DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
OF_RIGHTS = (TESTS / "sim/ablations/rights.py").read_text()


def without(area: str) -> set[str]:
    return {name for bug in facts().never[area].values() for name in bug.without}


def test_each_fact_has_a_test_and_each_mark_names_a_fact() -> None:
    names = facts().names
    assert len(names) > 200
    assert len(names) == len(set(names))
    assert sorted(proofs()) == sorted(names)


def test_every_test_of_a_trouble_is_in_the_page() -> None:
    told = {test for tests in proofs().values() for test in tests}
    for file in sorted((TESTS / "broker/troubles").glob("test_*.py")):
        place = file.relative_to(TESTS.parent).as_posix()
        assert [name for name in DEFINED.findall(file.read_text()) if f"{place}::{name}" not in told] == [], place


def test_every_safeguard_that_is_named_is_one_of_the_simulator() -> None:
    named = {name for area in facts().never for name in without(area)}
    assert len(named) > 20
    assert named - set(ABLATIONS) == set()


def test_every_safeguard_of_rights_is_in_the_page() -> None:
    assert set(re.findall(r'^@of_rights\("([^"]+)"', OF_RIGHTS, re.MULTILINE)) == without(SECURITY)


def test_the_tables_have_each_fact_with_its_tests() -> None:
    tables = proven.never() + proven.security() + proven.trouble() + proven.found()
    assert tables.count("\n| ") >= len(facts().names)
    assert all(f"`{test}`" in tables for tests in proofs().values() for test in tests)


def test_marks_of_functions_files_and_scenarios_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    one, two = "@pytest.mark.proves", "pytestmark = [pytest.mark.proves"
    (tests / "a.py").write_text(f'{one}("x", "y")\nasync def test_a(): ...\n@pytest.mark.slow\ndef test_b(): ...\n')
    (tests / "b.py").write_text(f'{two}("x"), pytest.mark.slow]\n')
    (tests / "c.txt").write_text("# A scenario.\n# proves: y, z\n")
    monkeypatch.setattr(proven, "ROOT", tmp_path)
    monkeypatch.setattr(proven, "TESTS", tests)
    proofs.cache_clear()
    try:
        assert proofs() == {
            "x": ["tests/a.py::test_a", "tests/b.py"],
            "y": ["tests/a.py::test_a", "tests/c.txt"],
            "z": ["tests/c.txt"],
        }
    finally:
        proofs.cache_clear()
