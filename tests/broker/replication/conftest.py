from collections.abc import AsyncIterator

import pytest
from broker.replication.brokers import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()
