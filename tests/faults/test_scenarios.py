"""The scenarios of `tests/scenarios`, each with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.language import VERBS, parse

from faults.actor import Actor
from faults.stage import Stage, Unmet, Unsupported

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
async def test_scenario(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        await Stage(tmp_path, print).play(parse(path.name, path.read_text()))
    except Unsupported as why:
        pytest.skip(str(why))


def test_every_verb_can_be_played_and_every_expectation_looked_at() -> None:
    for name, verb in VERBS.items():
        if verb.by_client and name != "wait":
            assert hasattr(Actor, name), name
        elif not verb.by_client:
            assert hasattr(Stage, f"on_{name}"), name


async def test_what_is_not_as_the_scenario_says_is_told_with_its_line(tmp_path: Path) -> None:
    text = "# about\nstart broker\ntopic out 1\nclient A id=tx\nA commit -> ok\nexpect all out 0 x\n"
    with pytest.raises(Unmet, match=r"wrong.txt:5: A commit -> ok: refused \(IllegalStateError"):
        await Stage(tmp_path).play(parse("wrong.txt", text))
    assert "ready" in (tmp_path / "broker.log").read_text()
    assert (tmp_path / "data" / "meta.properties").exists(), "what the broker left behind can be looked at"
