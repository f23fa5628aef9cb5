"""The demo on Spark, with few rows: exact when processes are killed, not exact when a record is wrong."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo.spark.__main__ import kill_order  # noqa: E402
from demo.spark.arrivals import Late, truth  # noqa: E402
from demo.spark.report import show_delays, summed  # noqa: E402


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
def test_every_figure_is_exact_when_brokers_and_workers_are_killed() -> None:
    command = [sys.executable, "-m", "demo.spark", "--rows", "5000", "--kills", "3", "--seed", "7", "--stream-s", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for who in ("broker", "Spark's driver", "a Python worker of Spark"):
        assert f": {who}" in done.stdout
    assert "it finished its batches, status 0" in done.stdout
    assert "Every figure is exact." in done.stdout


def test_a_seed_determines_the_kills_and_each_round_has_every_target() -> None:
    assert list(kill_order(random.Random(7), 6)) == list(kill_order(random.Random(7), 6))
    for seed in range(20):
        drawn = list(kill_order(random.Random(seed), 6))
        assert set(drawn[:3]) == set(drawn[3:]) == {"driver", "worker", "broker"}


def values_of(windows: Mapping[tuple[str, str], Late]) -> list[bytes]:
    return [
        json.dumps({"dest": dest, "airport": dest, "day": day, **late._asdict()}).encode()
        for (dest, day), late in windows.items()
    ]


def is_right(values: list[bytes]) -> bool:
    return show_delays(Console(file=io.StringIO()), summed(values), truth(2000))


def test_a_missing_repeated_unexpected_or_wrong_window_is_not_exact() -> None:
    right = truth(2000)
    first, late = next(iter(right.items()))
    assert is_right(values_of(right))
    assert not is_right(values_of(right)[1:])
    assert not is_right([*values_of(right), *values_of({first: late})])
    assert not is_right(values_of({**right, ("XXX", "2013-01-01"): late}))
    assert not is_right(values_of({**right, first: late._replace(late_min=late.late_min + 1)}))
