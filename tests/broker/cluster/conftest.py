"""What the tests of this folder stand on: an etcd for each process that runs tests, and clusters over either store."""

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
