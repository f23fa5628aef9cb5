"""Drivers and brokers that die, and drivers that resume, at every point of a batch; each row is counted.

One driver runs a query for every point at once. The fault happens when all queries have reached their point: in batch
1, or in batch 0, before which the sink remembers no batch. Then another driver continues from the same checkpoints.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pipeline.drivers import FILES, PipelineDriver, QueryFault, faulty_queries
from pipeline.fault_points import POINTS
from support.processes import BrokerProcess

HELD = [*(QueryFault(point, 1, "hold") for point in POINTS), QueryFault("before-decide", 0, "hold")]

SEMEL_ONLY = pytest.mark.semel_only("the sink is exactly once by transaction groups (BeginTransactionGroup, API 20001)")
pytestmark = [SEMEL_ONLY, pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(900)]


def run_to_the_end(address: str, driver: PipelineDriver) -> None:
    """Run another driver on the checkpoints of the failed one; then every row must be there once."""
    with PipelineDriver(address, driver.queries) as successor:
        assert set(successor.until_all_ended().values()) == {""}
    for each in driver.queries:
        each.case.check(FILES)


@pytest.mark.crash
def test_a_driver_killed_at_any_point_leaves_every_row_once(tmp_path: Path, broker: BrokerProcess) -> None:
    with PipelineDriver(broker.address, faulty_queries(tmp_path, broker.address, HELD)) as driver:
        driver.until_all_arrived()
        driver.kill()
        for each in driver.queries:  # also after the commit: Spark's own log does not have it yet
            assert not (each.case.folder / "checkpoint" / "commits" / str(each.fault.batch)).exists()
        run_to_the_end(broker.address, driver)


@pytest.mark.crash
def test_a_replaced_driver_that_resumes_changes_nothing(tmp_path: Path, broker: BrokerProcess) -> None:
    with PipelineDriver(broker.address, faulty_queries(tmp_path, broker.address, HELD)) as driver:
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
    assert "Spark driver of sink" in words, "the driver that has taken over"


def test_a_broker_killed_at_any_point_leaves_every_row_once(tmp_path: Path, broker: BrokerProcess) -> None:
    with PipelineDriver(broker.address, faulty_queries(tmp_path, broker.address, HELD)) as driver:
        driver.until_all_arrived()
        broker.kill()
        driver.release()
        broker.start()
        assert set(driver.until_all_ended().values()) == {""}
        for each in driver.queries:
            each.case.check(FILES)


RECOVERED = [
    QueryFault("in-write", 1, "exit"),
    QueryFault("after-prepare", 1, "exit"),
    QueryFault("in-write", 0, "raise"),
]
FAILED = [QueryFault(point, 1, "raise") for point in ("after-begin", "before-decide", "after-decide")]
UNLOGGED = QueryFault("after-decide", 1, "unlog")
"""commit() returns; Spark's next action fails."""


@pytest.mark.crash
def test_failing_tasks_and_commits_leave_every_row_once(tmp_path: Path, broker: BrokerProcess) -> None:
    """Spark repeats a failed task. A query whose driver part fails ends, aborts and is restarted; so is a query whose
    batch is committed in the sink but not in Spark's own log.
    """
    queries = faulty_queries(tmp_path, broker.address, [*RECOVERED, *FAILED, UNLOGGED])
    with PipelineDriver(broker.address, queries) as driver:
        driver.until_all_ended()
        for each in queries:
            assert each.arrived
            said = (each.case.folder / "ended").read_text()
            assert (f"injected fault at {each.fault.point}" in said) == (each.fault in FAILED), said
            if each.fault in RECOVERED:
                each.case.check(FILES)
            if each.fault == UNLOGGED:
                assert "checkpoint/commits" in said, said
                each.case.check(FILES)
                commits = each.case.folder / "checkpoint" / "commits"
                commits.unlink()
                commits.with_name("unlogged").rename(commits)
                assert not (commits / "1").exists()
        run_to_the_end(broker.address, driver)
