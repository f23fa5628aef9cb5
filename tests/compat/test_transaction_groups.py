"""Other clients beside transaction groups: they see API keys that Kafka lacks, and use ids with the form of member
ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from broker.wire import Wire
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest
from semel_protocol.messages.k20002_decide_transaction_group import DecideTransactionGroupRequest
from support.processes import BrokerProcess
from support.strangers import STRANGERS
from support.transactional import TRANSACTIONAL, TransactionalClient

Make = Callable[..., TransactionalClient]


def step(address: str, group: str) -> None:
    """A step of the group that commits nothing; then another one, which stays open."""

    async def take() -> None:
        wire = await Wire.connect(int(address.rpartition(":")[2]))
        begun = await wire.call(BeginTransactionGroupRequest(group=group, timeout_ms=60_000))
        assert begun.error_code == 0, begun
        decide = DecideTransactionGroupRequest(
            group=group, group_epoch=begun.group_epoch, token=f"step {begun.group_epoch}", committed=True
        )
        assert (await wire.call(decide)).error_code == 0
        assert (await wire.call(BeginTransactionGroupRequest(group=group, timeout_ms=60_000))).error_code == 0
        await wire.close()

    asyncio.run(take())


@pytest.mark.parametrize("make", TRANSACTIONAL, ids=lambda m: m.name)
def test_the_transactions_of_an_id_that_is_named_like_a_member_are_its_own(
    broker: BrokerProcess, topic: str, make: Make
) -> None:
    source, target, group = f"{topic}-in", f"{topic}-out", f"sink-{topic}"
    stranger = STRANGERS[0](broker.address)
    for name in (source, target):
        stranger.create_topic(name, 3)
    values = [b"%d" % n for n in range(60)]
    stranger.produce(source, [(n % 3, None, value) for n, value in enumerate(values[:30])])
    step(broker.address, group)
    with make(broker.address, source, target, f"group-{topic}", f"{group}/0") as pipeline:
        pipeline.run(30, abort_every=3)
        step(broker.address, group)
        stranger.produce(source, [(n % 3, None, value) for n, value in enumerate(values[30:])])
        pipeline.run(30, abort_every=3)
    found = [row.value for row in stranger.consume(target, 60, isolation="read_committed")]
    assert sorted(found) == sorted(b"done-" + value for value in values)
