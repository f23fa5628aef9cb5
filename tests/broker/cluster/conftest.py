"""Fixtures of the cluster tests: one etcd for each pytest process, and clusters over either kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from broker.cluster.brokers import ControllerCluster, SharedEtcd, SharedLocalStore
from support import etcd


@pytest.fixture(scope="session")
def etcd_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdProcess]:
    if etcd.binary() is None:
        pytest.skip(etcd.WHY_NOT)
    process = etcd.EtcdProcess(tmp_path_factory.mktemp("etcd") / "data").start()
    yield process
    process.kill()


@pytest.fixture(params=["local", "etcd"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ControllerCluster]:
    shared_store = (
        SharedLocalStore() if request.param == "local" else SharedEtcd(request.getfixturevalue("etcd_process"))
    )
    cluster = ControllerCluster(shared_store)
    yield cluster
    await cluster.close()


@pytest.fixture
async def local() -> AsyncIterator[ControllerCluster]:
    cluster = ControllerCluster(SharedLocalStore())
    yield cluster
    await cluster.close()
