"""The counting demo, with few rows: exact when the broker is killed, not exact when a record is wrong."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from support import etcd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo.counting.report import show  # noqa: E402
from demo.counting.totals import Total, parse, truth  # noqa: E402
from demo.flights import flights  # noqa: E402
from demo.report import RowAudit  # noqa: E402


def test_every_figure_is_exact_when_the_broker_is_killed() -> None:
    command = [sys.executable, "-m", "demo.counting", "--rows", "30000", "--kills", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("SIGKILL of the broker, after row") == 2
    assert "Every figure is exact." in done.stdout


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)
def test_every_figure_is_exact_when_brokers_with_users_over_tls_are_killed() -> None:
    command = [sys.executable, "-m", "demo.counting", "--brokers", "3", "--secure", "--rows", "30000", "--kills", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("SIGKILL of broker-") == 2
    assert "SCRAM over TLS" in " ".join(done.stdout.split())
    assert "Every figure is exact." in done.stdout


def audited(rows: list[int], sent: int) -> RowAudit:
    audit = RowAudit(sent)
    for row in rows:
        audit.add(row)
    return audit


def shown(audit: RowAudit, counted: dict[str, Total]) -> bool:
    return show(Console(file=io.StringIO()), audit, counted, {"UA": Total(3, 10)}, kills=0)


def test_a_lost_duplicated_or_unexpected_record_is_not_exact() -> None:
    right = {"UA": Total(3, 10)}
    assert shown(audited([0, 1, 2], 3), right)
    assert not shown(audited([0, 2], 3), right)
    assert not shown(audited([0, 1, 1, 2], 3), right)
    assert not shown(audited([0, 1, 2, 7], 3), right)
    assert not shown(audited([0, 1, 1], 3), right)


def test_a_wrong_sum_or_an_extra_carrier_is_not_exact() -> None:
    audit = audited([0, 1, 2], 3)
    assert not shown(audit, {"UA": Total(3, 11)})
    assert not shown(audit, {"UA": Total(2, 10)})
    assert not shown(audit, {"UA": Total(3, 10), "XX": Total(1, 0)})
    assert not shown(audit, {})


def test_counted_totals_equal_those_of_the_file() -> None:
    totals: dict[str, Total] = {}
    for flight in flights(2000):
        row, dep_delay = parse(flight.value)
        assert row == flight.row
        totals[flight.carrier] = totals.get(flight.carrier, Total()).plus(dep_delay)
    assert totals == truth(2000)
