"""The scenarios of `tests/scenarios`, each with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.language import parse

from faults.stage import Stage, Unsupported

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
async def test_scenario(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        await Stage(tmp_path, print).play(parse(path.name, path.read_text()))
    except Unsupported as why:
        pytest.skip(str(why))
