from collections.abc import AsyncIterator

import pytest
from broker.cluster.conftest import etcd_process
from broker.replication.brokers import ReplicationCluster

__all__ = ["cluster", "etcd_process"]


@pytest.fixture
async def cluster() -> AsyncIterator[ReplicationCluster]:
    cluster = ReplicationCluster()
    yield cluster
    await cluster.close()
