"""New connections of a client above its quota: their first requests start one by one, at the pace of the quota."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
from broker.conftest import StartBroker
from broker.handlers.test_client_quotas import alter, entry, limit
from broker.harness import Harness
from broker.wire import Wire, batch, produce_request
from msgspec.structs import replace
from semel_broker.net.socket_queue import hung_up
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from support.processes import BrokerProcess

ONE_KB = batch(b"x" * 1_000)
WINDOW_S = 11


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def limited(broker: Harness) -> Harness:
    """A broker with the topic `t`, whose clients may produce 1,000 bytes a second."""
    wire = await broker.wire()
    await wire.create_topic("t")
    await wire.close()
    await limit(broker, producer_byte_rate=1_000)
    return broker


async def produce_once(broker: Harness) -> Any:
    wire = await broker.wire()
    try:
        return await wire.call(produce_request("t", ONE_KB))
    finally:
        await wire.close()


async def test_a_connection_for_each_produce_does_not_pass_the_quota(limited: Harness) -> None:
    began = now()
    for _ in range(60):
        assert (await produce_once(limited)).responses[0].partition_responses[0].error_code == 0
    spent_s = now() - began
    assert 60 - WINDOW_S - 2 < spent_s < 80, "60 kB at 1 kB a second, with the burst of a window"


async def test_many_connections_at_once_do_not_pass_it_and_start_in_their_order(limited: Harness) -> None:
    began, order = now(), []

    async def one(number: int) -> None:
        answer = await produce_once(limited)
        order.append((answer.responses[0].partition_responses[0].base_offset, number))

    async with asyncio.TaskGroup() as group:
        for number in range(18):
            group.create_task(one(number))
    assert 18 - WINDOW_S - 2 < now() - began < 15
    assert [number for _, number in sorted(order)] == list(range(18))


async def test_connections_that_would_wait_for_too_long_are_closed_after_a_second_without_their_bytes(
    limited: Harness,
) -> None:
    wires = [await limited.wire() for _ in range(80)]
    for wire in wires:
        wire.send(produce_request("t", ONE_KB))
    await asyncio.sleep(0.5)
    node = limited.node
    assert node is not None
    assert node.server.context.entrances.waiting_bytes < 35_000
    assert node.server.context.memory.taken < 45_000, "the memory of refused requests is free at once"
    await asyncio.sleep(1)
    closed = [wire for wire in wires if wire.reader.at_eof()]
    assert 30 < len(closed) < 50
    await asyncio.sleep(60)
    assert node.server.context.entrances.waiting_bytes == 0
    for wire in wires:
        await wire.close()


async def test_the_bytes_that_wait_are_bounded(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os")
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=100_000)
    node = broker.node
    assert node is not None
    entrances = node.server.context.entrances
    entrances._limits = replace(entrances._limits, quota_waiting_bytes_max=5_000)
    await wire.call(produce_request("t", batch(b"x" * 1_500_000)))
    wires = [await broker.wire() for _ in range(10)]
    for each in wires:
        each.send(produce_request("t", ONE_KB))
    await asyncio.sleep(0.5)
    assert 3_000 < entrances.waiting_bytes <= 5_000
    await asyncio.sleep(20)
    assert entrances.waiting_bytes == 0
    for each in [*wires, wire]:
        await each.close()


async def test_a_connection_that_has_begun_is_answered_at_once_as_in_kafka(limited: Harness) -> None:
    first, second = await limited.wire(), await limited.wire()
    for wire in (first, second):
        await wire.call(produce_request("t", ONE_KB))
    for _ in range(15):
        await produce_once(limited)
    began = now()
    assert (await first.call(produce_request("t", ONE_KB))).throttle_time_ms > 0
    assert (await second.call(produce_request("t", ONE_KB))).throttle_time_ms > 0
    assert now() == began
    await first.close()
    await second.close()


async def test_other_requests_and_other_clients_do_not_wait(limited: Harness) -> None:
    for _ in range(15):
        await produce_once(limited)
    wire, other = await limited.wire(), await limited.wire()
    began = now()
    await wire.call(MetadataRequest(topics=[]))
    await limit(limited, {"client-id": "other"}, producer_byte_rate=10_000)
    assert now() == began
    wire.send(produce_request("t", ONE_KB))
    await asyncio.sleep(0)
    await other.call(MetadataRequest(topics=[]))
    assert now() == began
    await wire.receive()
    assert now() > began
    await wire.close()
    await other.close()


async def test_a_connection_that_closes_leaves_its_place(limited: Harness) -> None:
    for _ in range(15):
        await produce_once(limited)
    gone = [await limited.wire() for _ in range(20)]
    for wire in gone:
        wire.send(produce_request("t", ONE_KB))
    await asyncio.sleep(0.1)
    node = limited.node
    assert node is not None
    for connection in list(node.server._connections):
        connection.abort("peer_closed")
    await asyncio.sleep(0.1)
    assert node.server.context.entrances.waiting_bytes == 0
    began = now()
    await produce_once(limited)
    assert now() - began < 4
    for wire in gone:
        await wire.close()


async def test_a_connection_for_each_change_of_an_old_client_does_not_pass_the_quota(broker: Harness) -> None:
    await limit(broker, controller_mutation_rate=1)
    began = now()
    for number in range(30):
        wire = await broker.wire()
        topic = CreateTopicsRequestTopic(
            name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        answer = await wire.call(CreateTopicsRequest(topics=[topic], validate_only=False), 5)
        assert answer.topics[0].error_code == 0
        await wire.close()
    assert now() - began > 15


async def test_a_stop_does_not_wait_for_connections_that_wait(limited: Harness) -> None:
    for _ in range(15):
        await produce_once(limited)
    wire = await limited.wire()
    wire.send(produce_request("t", ONE_KB))
    await asyncio.sleep(0.1)
    began = now()
    await limited.restart()
    assert now() - began < 1
    await wire.close()


# --- peers that go while they are not read


def pair() -> tuple[socket.socket, socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    return near, far


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("how", "unread", "is_gone"),
    [
        ("open", b"", False),
        ("open", b"x" * 100, False),
        ("close", b"", True),
        ("close", b"x" * 24, True),  # as TLS's last record
        ("close", b"x" * 100, False),
        ("reset", b"x" * 100, True),
        ("shutdown", b"", True),
    ],
)
def test_a_peer_that_has_gone_is_noticed_without_reading(how: str, unread: bytes, is_gone: bool) -> None:
    near, far = pair()
    near.sendall(unread)
    if how == "close":
        near.close()
    elif how == "shutdown":
        near.shutdown(socket.SHUT_WR)
    elif how == "reset":
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        near.close()
    assert hung_up([far.fileno()]) == ([far.fileno()] if is_gone else [])
    near.close()
    far.close()


@pytest.mark.real_time
async def test_a_muted_connection_whose_client_has_gone_is_closed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", durability="os")
    await asyncio.to_thread(broker.start)
    try:
        process = psutil.Process(broker.pid)
        admin = await Wire.connect(broker.port)
        await admin.create_topic("t")
        before = process.num_fds()
        entries = [entry({"client-id": f"c{number}"}, producer_byte_rate=1) for number in range(30)]
        assert set(await alter(admin, *entries)) == {0}
        for number in range(30):
            wire = await Wire.connect(broker.port)
            wire.send(produce_request("t", ONE_KB), client_id=f"c{number}")
            assert (await wire.receive()).throttle_time_ms > 10_000
            await wire.close()
        async with asyncio.timeout(6):
            while process.num_fds() > before + 3:
                await asyncio.sleep(0.1)
        await admin.close()
    finally:
        await asyncio.to_thread(broker.stop)


async def test_heartbeat_of_a_new_connection_waits_for_the_share_of_time(broker: Harness) -> None:
    node = broker.node
    assert node is not None
    await limit(broker, request_percentage=1)
    quotas = node.broker.quotas.quotas
    quotas.worked("ANONYMOUS", "wire", 1.0, now())
    wire = await broker.wire()
    began = now()
    await wire.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    assert now() - began >= 1
    await wire.close()
