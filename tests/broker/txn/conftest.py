"""Fixtures of the transaction coordinator's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from broker.txn.transaction_broker import TransactionBroker


@pytest.fixture
async def brokers() -> AsyncIterator[list[TransactionBroker]]:
    """Those that a test opens and adds; closed afterwards."""
    opened: list[TransactionBroker] = []
    yield opened
    for one in opened:
        await one.close()


@pytest.fixture
async def one(brokers: list[TransactionBroker]) -> TransactionBroker:
    """An open one, as it is by default."""
    brokers.append(await TransactionBroker().open())
    return brokers[-1]
