"""An etcd for the tests of this folder: one for each process that runs tests, with a namespace for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import etcd


@pytest.fixture(scope="session")
def etcd_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdProcess]:
    if etcd.binary() is None:
        pytest.skip(etcd.WHY_NOT)
    process = etcd.EtcdProcess(tmp_path_factory.mktemp("etcd") / "data").start()
    yield process
    process.kill()
