"""Heavy regular expressions: other connections are served between the matches, and rights come first.

A match takes as many steps of a slice as its states and its name's bytes say, so the number of turns is exact.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.authorization.test_rules import allow, guarded
from broker.conftest import StartBroker
from broker.consumers import HeartbeatingMember
from broker.members import WireMember
from broker.net.test_long_requests import with_broker
from broker.wire import Wire
from semel_broker.authorization.guard import guarded as guard
from semel_broker.context import RequestContext
from semel_broker.handlers import NEEDS
from semel_broker.node import Node
from semel_broker.regex import WORK_PER_STEP, Expression
from semel_broker.scheduling.turns import SLICE_STEPS
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest
from support.virtual_loop import VirtualLoop

HEAVY = "(?:[ab]?){1000}c"
WORK = Expression(HEAVY).states


@pytest.fixture
def virtual() -> VirtualLoop:
    return VirtualLoop()


async def turns_until_answered(other: Wire, asked: Any) -> int:
    """The number of requests that another connection gets answered before `asked` is done."""
    turns = 0
    task = asyncio.ensure_future(asked)
    await asyncio.sleep(0)
    while not task.done():
        await other.call(MetadataRequest(topics=[]))
        turns += 1
    await task
    return turns


def expected_turns(names: list[str]) -> int:
    """Half the slices that so many matches fill: a request of the other connection may need two turns."""
    return sum(WORK * len(name) for name in names) // WORK_PER_STEP // SLICE_STEPS // 2


@pytest.mark.parametrize("joins_classic", [False, True])
def test_heartbeats_with_a_heavy_expression_leave_turns_to_others(virtual: VirtualLoop, joins_classic: bool) -> None:
    names = [f"{'ab' * 122}{number:03}" for number in range(60)]

    async def talk(node: Node) -> None:
        wire, other = await Wire.connect(node.port), await Wire.connect(node.port)
        for name in names:
            await wire.create_topic(name)
        member = HeartbeatingMember(wire, "m", topics=None, regex=HEAVY)
        if joins_classic:
            await WireMember(wire, "g").join()
        turns = await turns_until_answered(other, member.beat())
        assert turns >= expected_turns(names) > 5
        await wire.create_topic("c")
        turns = await turns_until_answered(other, member.beat())
        assert turns >= expected_turns(names), "a new topic has all names matched again"
        await wire.close()
        await other.close()

    with_broker(virtual, talk)


def test_a_listing_with_a_heavy_expression_leaves_turns_to_others(virtual: VirtualLoop) -> None:
    names = [f"{'ab' * 150}{number:03}" for number in range(60)]

    async def talk(node: Node) -> None:
        wire, other = await Wire.connect(node.port), await Wire.connect(node.port)
        for name in names:
            await wire.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4)
        asked = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=HEAVY)
        turns = await turns_until_answered(other, wire.call(asked, 2))
        assert turns >= expected_turns(names) > 5
        await wire.close()
        await other.close()

    with_broker(virtual, talk)


async def test_an_id_is_matched_only_for_a_sender_that_may_describe_it(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    await allow(harness, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "b" * 4000)
    assert (
        await wire.call(InitProducerIdRequest(transactional_id="b" * 4000, transaction_timeout_ms=1000), 4)
    ).error_code == 0
    asked = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=HEAVY)
    assert (await wire.call(asked, 2)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION  # WRITE implies DESCRIBE
    assert harness.node is not None
    acls = harness.node.broker.acls
    assert acls is not None
    await acls.delete(list(acls.authorizer.acls))
    answer = await wire.call(asked, 2)
    assert (answer.error_code, answer.transaction_states) == (0, [])


async def test_rows_that_the_sender_may_not_see_are_left_out_in_slices(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    assert harness.node is not None
    broker = harness.node.broker
    assert broker.acls is not None
    names = [f"g{number}" for number in range(3_000)]
    await allow(harness, Operation.DESCRIBE, ResourceType.GROUP, "g7")
    answered = asyncio.Event()

    async def every_group(request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
        answered.set()
        row = ListGroupsResponseGroup
        return ListGroupsResponse(groups=[row(group_id=name, protocol_type="consumer") for name in names])

    handle = guard({16: every_group}, NEEDS, broker.acls.authorizer, lambda *_: None)[16]
    ctx = RequestContext(broker, 4, "c", "127.0.0.1", "PLAINTEXT", principal=Principal(ANONYMOUS.name, "127.0.0.1"))
    answer = asyncio.ensure_future(handle(ListGroupsRequest(states_filter=[], types_filter=[]), ctx))
    await answered.wait()
    turns = 0
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(names) // SLICE_STEPS
    assert [row.group_id for row in (await answer).groups] == ["g7"]
