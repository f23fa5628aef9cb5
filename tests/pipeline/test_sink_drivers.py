"""Drivers that die, and drivers that come back, at every point of a batch; each row counted.

One driver runs a query for every point at once, and is struck when all of them are there: in the middle of batch 1,
or of batch 0, before which the sink remembers nothing. What comes after is another driver on the same checkpoints.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.queries import Case
from pipeline.struck import POINTS, arm, arrived, wait_for
from support.processes import BrokerProcess

FILES = 3
STRUCK = [*((point, 1) for point in POINTS), ("before-decide", 0)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", **{"num.partitions": "2", "durability": "os"})
    broker.start()
    yield broker
    broker.stop()


class Driver:
    """A driver in a process of its own, with all that it starts in its group."""

    def __init__(self, address: str, cases: list[Case]) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.queries", address, *(str(case.folder) for case in cases)],
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
            stdout=None if os.environ.get("SHOW") else subprocess.DEVNULL,
            stderr=None if os.environ.get("SHOW") else subprocess.DEVNULL,
        )

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def wait(self) -> None:
        assert self.process.wait(250) == 0, "the driver failed"


def driver_at_all_points(tmp_path: Path, address: str) -> tuple[Driver, list[tuple[Case, str, int]]]:
    struck = []
    for point, batch in STRUCK:
        case = Case(tmp_path / f"{point}-{batch}", address)
        for number in range(FILES):
            case.add_file(number)
        arm(case.points, point, batch, "hold")
        struck.append((case, point, batch))
    driver = Driver(address, [case for case, _, _ in struck])
    try:
        for case, point, batch in struck:
            wait_for(
                lambda case=case, point=point, batch=batch: arrived(case.points, point, batch, "hold"), case.name, 200
            )
    except BaseException:
        driver.signal(signal.SIGKILL)
        raise
    return driver, struck


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_killed_at_any_point_leaves_every_row_once(tmp_path: Path, broker: BrokerProcess) -> None:
    driver, struck = driver_at_all_points(tmp_path, broker.address)
    driver.signal(signal.SIGKILL)
    driver.process.wait()
    for case, point, batch in struck:
        if point == "after-decide":  # the same as behind commit(): Spark's own log does not have the batch
            assert not (case.folder / "checkpoint" / "commits" / str(batch)).exists()
    cases = [case for case, _, _ in struck]
    successor = Driver(broker.address, cases)
    successor.wait()
    for case in cases:
        assert (case.folder / "ended").read_text() == ""
        case.check(FILES)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_that_was_thought_dead_comes_back_and_changes_nothing(tmp_path: Path, broker: BrokerProcess) -> None:
    driver, struck = driver_at_all_points(tmp_path, broker.address)
    driver.signal(signal.SIGSTOP)
    try:
        cases = [case for case, _, _ in struck]
        successor = Driver(broker.address, cases)
        successor.wait()
        for case in cases:
            assert (case.folder / "ended").read_text() == ""
            case.check(FILES)
            (case.folder / "ended").unlink()
            (case.points / "go").touch()
    finally:
        driver.signal(signal.SIGCONT)
    wait_for(lambda: all((case.folder / "ended").exists() for case in cases), "the end of the zombie")
    driver.signal(signal.SIGKILL)
    driver.process.wait()
    said = {case.name: (case.folder / "ended").read_text() for case in cases}
    for case in cases:
        case.check(FILES)
    assert "began step" in said["before-decide-1"], said["before-decide-1"]
