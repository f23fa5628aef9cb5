"""A broker with short sessions of the consumer protocol, and a topic of six partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.harness import Harness
from client.consuming import produce
from client.group.members import TIMES, create, skip_without_consumer_protocol
from support.against import OutsideBroker, outside


@pytest.fixture
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness | OutsideBroker]:
    """A real broker that serves both group protocols."""
    if there := outside(request):
        yield there
        await there.close()
        return
    harness = Harness(tmp_path / "data", group_initial_rebalance_delay_ms="0", **TIMES)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


@pytest.fixture
async def consumer_protocol(broker: Harness | OutsideBroker) -> None:
    """Skip the test if an outside broker does not serve the consumer protocol."""
    await skip_without_consumer_protocol(broker)


@pytest.fixture
async def wide(bootstrap: str) -> str:
    """A topic `t` of six partitions."""
    await create(bootstrap, t=6)
    await produce(bootstrap, [b"0"])
    return bootstrap
