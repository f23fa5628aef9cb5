from collections.abc import AsyncIterator

import pytest
from broker.coordination.seats import Seats


@pytest.fixture
async def seats() -> AsyncIterator[Seats]:
    seats = Seats()
    yield seats
    await seats.close()
