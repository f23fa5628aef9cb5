from collections.abc import AsyncIterator

import pytest
from broker.coordination.coordinator_cluster import CoordinatorCluster


@pytest.fixture
async def nodes() -> AsyncIterator[CoordinatorCluster]:
    nodes = CoordinatorCluster()
    yield nodes
    await nodes.close()
