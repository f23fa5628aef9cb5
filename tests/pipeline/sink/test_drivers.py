"""Drivers and brokers that die, and drivers that come back, at every point of a batch; each row counted.

One driver runs a query for every point at once, and is struck when all of them are there: in the middle of batch 1,
or of batch 0, before which the sink remembers nothing. What comes after is another driver on the same checkpoints.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.drivers import FILES, Driver, Strike, struck_queries
from pipeline.struck import POINTS
from support.processes import BrokerProcess

HELD = [*(Strike(point, 1, "hold") for point in POINTS), Strike("before-decide", 0, "hold")]

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", **{"num.partitions": "2", "durability": "os"})
    broker.start()
    yield broker
    broker.stop()


def run_to_the_end(address: str, driver: Driver) -> None:
    """Another driver on the checkpoints of the one that was struck; every row is there once then."""
    with Driver(address, driver.queries) as successor:
        assert set(successor.until_all_ended().values()) == {""}
    for each in driver.queries:
        each.case.check(FILES)


@pytest.mark.crash
def test_a_driver_killed_at_any_point_leaves_every_row_once(tmp_path: Path, broker: BrokerProcess) -> None:
    with Driver(broker.address, struck_queries(tmp_path, broker.address, HELD)) as driver:
        driver.until_all_arrived()
        driver.kill()
        for each in driver.queries:  # also where the commit is through: Spark's own log does not know it yet
            assert not (each.case.folder / "checkpoint" / "commits" / str(each.strike.batch)).exists()
        run_to_the_end(broker.address, driver)


@pytest.mark.crash
def test_a_driver_that_was_thought_dead_comes_back_and_changes_nothing(tmp_path: Path, broker: BrokerProcess) -> None:
    with Driver(broker.address, struck_queries(tmp_path, broker.address, HELD)) as driver:
        driver.until_all_arrived()
        driver.signal(signal.SIGSTOP)
        broker.kill()
        broker.start()
        run_to_the_end(broker.address, driver)
        for each in driver.queries:
            (each.case.folder / "ended").unlink()
        driver.release()
        driver.signal(signal.SIGCONT)
        said = driver.until_all_ended()
        for each in driver.queries:
            each.case.check(FILES)
    assert all(said.values()), "each of them has met its successor"
    words = said["before-decide"]
    assert "PRODUCER_FENCED" in words, words
    assert "Another driver writes to this sink" in words
    assert "Spark driver of sink" in words, "who has taken over"


def test_a_broker_killed_at_any_point_costs_nothing(tmp_path: Path, broker: BrokerProcess) -> None:
    with Driver(broker.address, struck_queries(tmp_path, broker.address, HELD)) as driver:
        driver.until_all_arrived()
        broker.kill()
        driver.release()
        broker.start()
        assert set(driver.until_all_ended().values()) == {""}
        for each in driver.queries:
            each.case.check(FILES)


RECOVERED = [Strike("in-write", 1, "exit"), Strike("after-prepare", 1, "exit"), Strike("in-write", 0, "raise")]
FAILED = [Strike(point, 1, "raise") for point in ("after-begin", "before-decide", "after-decide")]
UNLOGGED = Strike("after-decide", 1, "unlog")
"""commit() returns; what Spark does next fails."""


@pytest.mark.crash
def test_tasks_that_die_or_fail_and_commits_that_raise_leave_every_row_once(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    """Spark tries a task again; a query whose driver part fails ends, aborts, and is started again; as is one whose
    batch is committed here and not in Spark's own log."""
    queries = struck_queries(tmp_path, broker.address, [*RECOVERED, *FAILED, UNLOGGED])
    with Driver(broker.address, queries) as driver:
        driver.until_all_ended()
        for each in queries:
            assert each.arrived
            said = (each.case.folder / "ended").read_text()
            assert (f"struck {each.strike.point}" in said) == (each.strike in FAILED), said
            if each.strike in RECOVERED:
                each.case.check(FILES)
            if each.strike == UNLOGGED:
                assert "checkpoint/commits" in said, said
                each.case.check(FILES)
                commits = each.case.folder / "checkpoint" / "commits"
                commits.unlink()
                commits.with_name("unlogged").rename(commits)
                assert not (commits / "1").exists()
        run_to_the_end(broker.address, driver)
