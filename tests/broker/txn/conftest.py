"""Fixtures of the transaction coordinator's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from broker.txn.transaction_broker import TransactionBroker


@pytest.fixture
async def brokers() -> AsyncIterator[list[TransactionBroker]]:
    """The brokers that a test opens. They are closed afterwards."""
    opened: list[TransactionBroker] = []
    yield opened
    for one in opened:
        await one.close()


@pytest.fixture
async def one(brokers: list[TransactionBroker]) -> TransactionBroker:
    """An open broker with the default settings."""
    brokers.append(await TransactionBroker().open())
    return brokers[-1]
