"""The demo, with few rows: exact when processes are killed, not exact when a record is wrong."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo.flights import airline_of, airlines, enriched, flights, row_of, truth  # noqa: E402
from demo.report import RowAudit, verdict  # noqa: E402


@pytest.mark.thorough
def test_every_figure_is_exact_when_brokers_and_workers_are_killed() -> None:
    command = [sys.executable, "-m", "demo", "--rows", "40000", "--kills", "3", "--seed", "1", "--console"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("SIGKILL ") >= 3
    assert "gave way to epoch" in done.stdout
    assert "/#token=" in done.stdout
    assert "Every figure is exact." in done.stdout


def audited(rows: list[int], sent: int) -> RowAudit:
    audit = RowAudit(sent)
    for row in rows:
        audit.add(row)
    return audit


def is_exact(source: RowAudit, committed: RowAudit, fenced: bool = True, airlines_right: bool = True) -> bool:
    return verdict(Console(file=io.StringIO()), source, committed, fenced, airlines_right)


def test_a_lost_duplicated_or_unexpected_record_is_not_exact() -> None:
    right = audited([0, 1, 2], 3)
    assert is_exact(right, right)
    for rows in ([0, 2], [0, 1, 1, 2], [0, 1, 2, 7], [0, 1, 1]):
        assert not is_exact(right, audited(rows, 3))
        assert not is_exact(audited(rows, 3), right)


def test_an_unfenced_zombie_or_a_wrong_airline_is_not_exact() -> None:
    right = audited([0, 1, 2], 3)
    assert not is_exact(right, right, fenced=False)
    assert not is_exact(right, right, airlines_right=False)


def test_airlines_of_enriched_flights_equal_those_of_the_file() -> None:
    names = airlines()
    counts: dict[str, int] = {}
    for flight in flights(2000):
        value = enriched(flight.value, names[flight.carrier])
        assert row_of(value) == flight.row
        counts[airline_of(value)] = counts.get(airline_of(value), 0) + 1
    assert counts == truth(2000)
