"""Plans that failed once, made small. Each file in `regressions/` has the name of its finding.

docs/reliability.md describes the findings. `make sim PLAN=tests/sim/regressions/NAME.json` shows one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sim.plan import RunPlan
from sim.run import run

PLANS = sorted(Path(__file__).with_name("regressions").glob("*.json"))


@pytest.mark.proves("error-about-nothing", "assignment-never-heard-of")
@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_what_was_found_once_is_not_found_again(path: Path) -> None:
    verdict = run(msgspec.json.decode(path.read_bytes(), type=RunPlan))
    assert verdict.is_clean, (verdict.anomalies, verdict.failures)
