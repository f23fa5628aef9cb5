"""Fixtures of the transaction coordinator's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from broker.txn.office import Office


@pytest.fixture
async def offices() -> AsyncIterator[list[Office]]:
    """Those that a test opens and adds; closed afterwards."""
    opened: list[Office] = []
    yield opened
    for office in opened:
        await office.close()


@pytest.fixture
async def office(offices: list[Office]) -> Office:
    """An open one, as it is by default."""
    offices.append(await Office().open())
    return offices[-1]
