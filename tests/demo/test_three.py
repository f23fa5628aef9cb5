"""The demo on three brokers, with few rows: exact when leaders and coordinators are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import etcd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from semel import TopicPartition  # noqa: E402

from demo.roles import BrokerRoles  # noqa: E402

SEED = "4"
"""With this seed both kills hit brokers."""


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)
@pytest.mark.parametrize("how", [[], ["--secure"]], ids=["plain", "secure"])
def test_every_figure_is_exact_when_leaders_and_coordinators_are_killed(how: list[str]) -> None:
    command = [sys.executable, "-m", "demo", "--brokers", "3", "--rows", "20000", "--kills", "2", "--seed", SEED, *how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(": broker-") == 2
    assert "is the same on three brokers, byte for byte" in done.stdout
    assert "gave way to epoch" in done.stdout
    assert "Every figure is exact." in done.stdout
    assert ("SCRAM over TLS" in " ".join(done.stdout.split())) == bool(how)


def test_roles_of_a_broker_are_described_in_one_line() -> None:
    leads = {
        TopicPartition("flights", 0): 1,
        TopicPartition("flights", 3): 2,
        TopicPartition("__consumer_offsets", 1): 0,
    }
    assert str(BrokerRoles(leads, ("enrich-1",), is_controller=True)) == "led 2 of flights; enrich-1, controller"
    assert str(BrokerRoles({}, (), is_controller=False)) == "led nothing"
