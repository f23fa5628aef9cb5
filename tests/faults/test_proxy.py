"""Tests of the proxy: without faults it forwards all frames, and a fault affects only the chosen frame."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from broker.wire import Wire, batch, produce_request
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest

from faults.proxy import Direction, Proxy

QUIET_S = 0.15
"""Longer than the time of an answer that is not held back."""
LOST = (ConnectionError, asyncio.IncompleteReadError)


@pytest.fixture
async def proxy(semel_broker: EphemeralBroker) -> AsyncIterator[Proxy]:
    semel_broker.create_topic("t", 1)
    proxy = await Proxy(random.Random(1), semel_broker.port).start()
    yield proxy
    await proxy.stop()


async def wire(proxy: Proxy) -> Wire:
    return await Wire.connect(proxy.port)


async def is_silent(wire: Wire) -> bool:
    """Whether no answer arrives within QUIET_S. A later answer can still be read."""
    try:
        async with asyncio.timeout(QUIET_S):
            await wire.receive_frame()
    except TimeoutError:
        return True
    return False


async def test_without_faults_every_answer_comes_in_order(proxy: Proxy) -> None:
    client = await wire(proxy)
    for number in range(50):
        client.send(produce_request("t", batch(b"%d" % number)))
    offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(50)]
    assert offsets == list(range(50))
    assert len(await client.values("t")) == 50
    await client.close()


async def test_a_held_request_is_delivered_after_its_client_is_gone(proxy: Proxy) -> None:
    client = await wire(proxy)
    held = proxy.hold("wire", "Produce", Direction.REQUEST)
    client.send(produce_request("t", batch(b"late")))
    await held.met.wait()
    await client.close()
    reader = await wire(proxy)
    assert await reader.values("t") == []
    proxy.release("wire")
    while not await reader.values("t"):
        await asyncio.sleep(0.01)
    assert await reader.values("t") == [b"late"]
    await reader.close()


async def test_only_the_next_frame_of_that_api_is_held_and_what_is_behind_it_waits(proxy: Proxy) -> None:
    client, other = await wire(proxy), await wire(proxy)
    proxy.hold("wire", "Produce", Direction.ANSWER)
    await client.call(ApiVersionsRequest(), 0)
    client.send(produce_request("t", batch(b"x")))
    client.send(ApiVersionsRequest(), 0)
    assert await is_silent(client)
    assert await other.values("t") == [b"x"], "the request went through"
    assert (await other.produce("t", batch(b"y"))).error_code == 0, "one frame is held, not every one"
    proxy.release()
    assert (await client.receive()).responses[0].partition_responses[0].base_offset == 0
    await client.receive()
    for each in (client, other):
        await each.close()


async def test_a_lost_answer_takes_its_connection_along(proxy: Proxy) -> None:
    client = await wire(proxy)
    proxy.lose("wire", "Produce", Direction.ANSWER)
    with pytest.raises(LOST):
        await client.produce("t", batch(b"x"))
    reader = await wire(proxy)
    assert await reader.values("t") == [b"x"]
    await client.close()
    await reader.close()


async def test_parted_in_one_direction_requests_arrive_and_answers_come_late(proxy: Proxy) -> None:
    client = await wire(proxy)
    await client.call(ApiVersionsRequest(), 0)
    proxy.part("wire", Direction.ANSWER)
    client.send(produce_request("t", batch(b"x")))
    assert await is_silent(client)
    proxy.join("wire")
    assert (await client.receive()).responses[0].partition_responses[0].base_offset == 0
    await client.close()


async def test_a_reset_and_a_cut_frame_end_the_connection(proxy: Proxy) -> None:
    client = await wire(proxy)
    await client.call(ApiVersionsRequest(), 0)
    assert proxy.reset("wire") == 1
    with pytest.raises(LOST):
        await client.call(ApiVersionsRequest(), 0)
    proxy.cut_chance = 1.0
    client = await wire(proxy)
    with pytest.raises(LOST):
        await client.call(ApiVersionsRequest(), 0)
    proxy.heal()
    client = await wire(proxy)
    await client.call(ApiVersionsRequest(), 0)
    await client.close()


async def test_delayed_frames_keep_their_order_and_overlap(proxy: Proxy) -> None:
    client = await wire(proxy)
    proxy.delay_s = (0.05, 0.05)
    began = asyncio.get_running_loop().time()
    for number in range(20):
        client.send(produce_request("t", batch(b"%d" % number)))
    offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(20)]
    took = asyncio.get_running_loop().time() - began
    assert offsets == list(range(20))
    assert 0.1 <= took < 1.0, "20 frames one after the other would take 2 s"
    await client.close()


async def test_while_the_broker_is_down_connections_are_reset(proxy: Proxy, semel_broker: EphemeralBroker) -> None:
    semel_broker.kill()
    with pytest.raises(LOST):
        await (await wire(proxy)).call(ApiVersionsRequest(), 0)
    semel_broker.start()
    client = await wire(proxy)
    await client.call(ApiVersionsRequest(), 0)
    await client.close()
