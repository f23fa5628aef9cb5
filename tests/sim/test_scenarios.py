"""The scenarios of `tests/scenarios` in the simulated world; with real processes: `tests/faults/test_scenarios.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.scenario_run import Unmet, Unsupported
from scenarios.language import parse

from sim.scenarios.scenario_run import play

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    try:
        play(parse(path.name, path.read_text()), tmp_path, print)
    except Unsupported as why:
        pytest.skip(str(why))


def test_a_failed_expectation_is_reported_with_its_line(tmp_path: Path) -> None:
    text = "# about\nstart broker\ntopic out 1\nclient A id=tx\nA commit -> ok\nexpect all out 0 x\n"
    with pytest.raises(Unmet, match=r"wrong.txt:5: A commit -> ok: refused \(IllegalStateError"):
        play(parse("wrong.txt", text), tmp_path, print)


def test_a_scenario_is_always_the_same(tmp_path: Path) -> None:
    path = next(path for path in SCENARIOS if path.stem == "late_end_txn")
    scenario = parse(path.name, path.read_text())
    assert play(scenario, tmp_path, print).digest() == play(scenario, tmp_path, print).digest()
