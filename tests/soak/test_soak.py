"""A short soak with real processes: all kinds of work run, nothing fails, and the figures are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_soak_of_two_minutes_levels_off() -> None:
    words = ["--minutes", "2", "--every", "10", "--expire-minutes", "0.25", "--pause", "0.2", "--seed", "1"]
    ended = subprocess.run(
        [sys.executable, "-m", "soak", *words], cwd=TESTS, capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "levels off" in ended.stdout
