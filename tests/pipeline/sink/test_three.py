"""A driver that dies between the decision of its batch and the markers; each row is counted.

It runs on three brokers: the leader of the written partitions is paused while another broker decides.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.drivers import FILES, PipelineDriver, QueryFault, faulty_queries
from pipeline.fault_points import wait_for
from pipeline.queries import ROWS, committed
from semel import Admin, Producer
from support import etcd
from support.three import EtcdAndThreeBrokers, three

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.timeout(600),
    pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT),
]

SETTINGS = {
    "durability": "os",
    "min.insync.replicas": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdAndThreeBrokers]:
    """A cluster in which all transactions have the same coordinator."""
    with three(tmp_path / "cluster", **SETTINGS) as made:
        yield made


async def coordinator(address: str) -> int:
    """Return the coordinator."""
    async with Producer(bootstrap_servers=address, transactional_id="first"), Admin(bootstrap_servers=address) as admin:
        (described,) = await admin.describe_topics(["__transaction_state"])
        return described.partitions[0].leader


async def is_decided(address: str, group: str) -> bool:
    """Return whether the step is committed; assert that none of its transactions is completed."""
    async with Admin(bootstrap_servers=address) as admin:
        (described,) = await admin.describe_transaction_groups([group])
    if described.state != "Committed" or described.decided_token is None or described.decided_token[-2:] != ":1":
        return False
    assert {member.state for member in described.members} == {"PrepareCommit"}
    return True


def test_a_driver_killed_between_the_decision_and_its_markers_leaves_every_row_once(
    tmp_path: Path, cluster: EtcdAndThreeBrokers
) -> None:
    deciding = asyncio.run(coordinator(cluster.addresses))
    leading = next(node_id for node_id in cluster.brokers if node_id != deciding)
    address = cluster.brokers[deciding].address
    queries = faulty_queries(tmp_path / "queries", address, [QueryFault("before-decide", 1, "hold")])
    (query,) = queries
    cluster.create(query.case.name, [[leading], [leading]])
    with PipelineDriver(address, queries) as driver:
        driver.until_all_arrived()
        os.kill(cluster.brokers[leading].pid, signal.SIGSTOP)
        driver.release()
        wait_for(lambda: asyncio.run(is_decided(address, query.case.name)), "the decision")
        driver.kill()
        assert not (query.case.folder / "checkpoint" / "commits" / "1").exists()
    os.kill(cluster.brokers[leading].pid, signal.SIGCONT)
    wait_for(lambda: len(committed(address, query.case.name)) == FILES * ROWS, "the markers, without any driver")
    with PipelineDriver(address, queries) as successor:
        assert successor.until_all_ended() == {"before-decide": ""}
    query.case.check(FILES)
