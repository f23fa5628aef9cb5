"""The requests of one transactional id are answered one after the other, in the order in which they came."""

import asyncio

import pytest
from semel_broker.coordination.engine import FifoLock


async def test_first_come_first_served() -> None:
    lock, order = FifoLock(), []

    async def ask(number: int) -> None:
        await lock.wait()
        order.append(number)
        await asyncio.sleep(0)
        lock.give()

    await asyncio.gather(*map(ask, range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert not lock.is_taken


async def test_a_cancelled_waiter_does_not_block_the_next() -> None:
    lock = FifoLock()
    assert lock.take()
    assert not lock.take()
    waiting = [asyncio.create_task(lock.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    lock.give()  # to the second; the first is already on its way out
    await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await waiting[1]
    lock.give()
    await waiting[2]
    lock.give()
    assert not lock.is_taken


async def test_a_lock_handed_to_a_cancelled_waiter_goes_to_the_next() -> None:
    lock = FifoLock()
    assert lock.take()
    first, second = (asyncio.create_task(lock.wait()) for _ in range(2))
    await asyncio.sleep(0)
    lock.give()
    first.cancel()  # it has the lock, and has not woken up yet
    await second
    assert first.cancelled()
    lock.give()
    assert not lock.is_taken
