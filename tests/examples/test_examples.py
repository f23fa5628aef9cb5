"""Every program of the folder examples/ runs against a broker process and prints what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import BrokerProcess

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), **{"group.initial.rebalance.delay.ms": "0"}).start()
    yield process
    assert process.stop() == 0


def run(broker: BrokerProcess, *command: str, data: bytes | None = None) -> str:
    """Run a command of this Python environment against the broker; its output."""
    environ = {**os.environ, "SEMEL_BOOTSTRAP_SERVER": broker.address, "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(command, input=data, capture_output=True, env=environ, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def example(broker: BrokerProcess, name: str, *arguments: str) -> str:
    return run(broker, sys.executable, str(EXAMPLES / name), *arguments)


def semel(broker: BrokerProcess, *arguments: str, data: bytes | None = None) -> str:
    return run(broker, sys.executable, "-m", "semel", *arguments, data=data)


def test_produce_and_consume(broker: BrokerProcess) -> None:
    out = example(broker, "produce_and_consume.py")
    assert "offsets 0 to 9" in out
    assert "read 10 records" in out


def test_exactly_once(broker: BrokerProcess) -> None:
    orders = [f"order-{number}" for number in range(300)]
    semel(broker, "produce", "orders", data="\n".join(orders).encode())
    assert "invoices" in example(broker, "exactly_once.py", "one", orders[-1])
    semel(broker, "produce", "orders", data=b"order-300")
    assert "1 invoices" in example(broker, "exactly_once.py", "two", "order-300")
    out = semel(broker, "consume", "invoices", "--from-beginning", "--exit-at-end")
    assert sorted(out.split("\n")[:-1]) == sorted(f"invoice of order-{number}" for number in range(301))


def test_dead_letters(broker: BrokerProcess) -> None:
    out = example(broker, "dead_letters.py")
    assert "dead letter: numbers-0@2: invalid literal" in out
    assert "4 records handled" in out
    assert semel(broker, "consume", "squares", "--from-beginning", "--exit-at-end").split() == ["9", "16", "36"]
    assert semel(broker, "consume", "numbers-dead", "--from-beginning", "--exit-at-end").split() == ["five"]


def test_json_values(broker: BrokerProcess) -> None:
    out = example(broker, "json_values.py")
    assert "UA 1545: +11 minutes" in out
    assert "together +5 minutes" in out


def test_the_fencing_and_the_fenced_producer_are_named(broker: BrokerProcess) -> None:
    out = example(broker, "who_fenced_whom.py")
    assert "by client 'shop-pod-2'" in out
    assert "shop-pod-2" in semel(broker, "txn", "why", "shop")
    assert semel(broker, "consume", "orders-fenced", "--from-beginning", "--exit-at-end").split("\n")[0] == "one teapot"


def test_timeline(broker: BrokerProcess, tmp_path: Path) -> None:
    assert "worker-3 was fenced" in example(broker, "timeline.py")
    picture = tmp_path / "timeline.svg"
    out = semel(broker, "txn", "timeline", "timeline-demo", "--list")
    assert "worker-2" in out
    assert "committed" in out
    assert "[green]" not in out, "markup is shown as a style"
    semel(broker, "txn", "timeline", "timeline-demo", "--svg", str(picture))
    assert picture.read_text().startswith("<svg")


def test_the_test_of_an_application_passes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_with_a_broker.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("..")


def test_every_program_is_in_the_list_and_run_here() -> None:
    text, mine = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"[`{path.name}`]({path.name})" in text
        assert f'"{path.name}"' in mine
