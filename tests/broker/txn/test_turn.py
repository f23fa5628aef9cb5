"""The requests of one transactional id are answered one after the other, in the order in which they came."""

import asyncio

import pytest
from semel_broker.txn.turn import Turn


async def test_first_come_first_served() -> None:
    turn, order = Turn(), []

    async def ask(number: int) -> None:
        await turn.wait()
        order.append(number)
        await asyncio.sleep(0)
        turn.give()

    await asyncio.gather(*map(ask, range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert not turn.is_taken


async def test_who_gives_up_waiting_does_not_block_the_next() -> None:
    turn = Turn()
    assert turn.take()
    assert not turn.take()
    waiting = [asyncio.create_task(turn.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    turn.give()  # to the second; the first is already on its way out
    await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await waiting[1]
    turn.give()
    await waiting[2]
    turn.give()
    assert not turn.is_taken


async def test_a_turn_given_to_one_who_is_cancelled_goes_on_to_the_next() -> None:
    turn = Turn()
    assert turn.take()
    first, second = (asyncio.create_task(turn.wait()) for _ in range(2))
    await asyncio.sleep(0)
    turn.give()
    first.cancel()  # it has the turn, and has not woken up yet
    await second
    assert first.cancelled()
    turn.give()
    assert not turn.is_taken
