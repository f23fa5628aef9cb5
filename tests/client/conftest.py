"""Fixtures of the client's tests: a scripted broker, and a real one in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.harness import Harness
from client.fake_broker import FakeBroker
from support.against import OutsideBroker, outside


@pytest.fixture
async def fake_broker() -> AsyncIterator[FakeBroker]:
    """One topic `t` of one partition; see FakeBroker."""
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness | OutsideBroker]:
    """A real broker over an empty directory; `broker.port`, `await broker.restart()`."""
    if there := outside(request):
        yield there
        await there.close()
        return
    harness = Harness(tmp_path / "data", group_initial_rebalance_delay_ms="0")
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


@pytest.fixture
def bootstrap(broker: Harness | OutsideBroker) -> str:
    """The address of the real broker."""
    return f"127.0.0.1:{broker.port}"
