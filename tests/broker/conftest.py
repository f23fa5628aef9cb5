from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from broker.bench import Bench
from broker.harness import Harness, Wire
from support.loop_syncs import loop_syncs_refused

__all__ = ["loop_syncs_refused"]

StartBroker = Callable[..., Awaitable[Harness]]


@pytest.fixture
async def start_broker(tmp_path: Path, loop_syncs_refused: None) -> AsyncIterator[StartBroker]:
    """Start brokers with settings of your own: `await start_broker(durability="fsync", num_partitions="3")`."""
    started: list[Harness] = []

    async def start(name: str = "data", **settings: str) -> Harness:
        harness = Harness(tmp_path / name, **settings)
        started.append(harness)
        return await harness.start()

    yield start
    for harness in reversed(started):
        await harness.stop()


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    """A broker with durability=os: fast, and every acknowledged write survives the death of the process."""
    return await start_broker(durability="os")


@pytest.fixture(params=["os", "fsync"])
async def either_broker(start_broker: StartBroker, request: pytest.FixtureRequest) -> Harness:
    """The test runs against both durabilities."""
    return await start_broker(durability=request.param)


@pytest.fixture
async def wire(broker: Harness) -> Wire:
    """A connection to `broker`."""
    return await broker.wire()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A server whose handlers are the test's."""
    made = Bench()
    yield made
    await made.stop()
