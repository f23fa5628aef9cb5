"""A command prints the address that it waits for, and ends soon if no broker listens there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click
import msgspec
import pytest
from client.fake_broker import QUICK, FakeBroker
from semel import Admin, Consumer, Producer, TopicPartition
from semel._command_line.client_settings import ClientSettings
from semel._command_line.client_start import UnreachableError, started
from semel.cli.produce import stall
from semel.cli.produce.stall import reason, say_stalls
from semel.structs import PartitionMetadata
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorResponse

pytestmark = pytest.mark.usefixtures("virtual_time")
CLOSED = "127.0.0.1:1"


async def test_a_refused_connection_is_named_after_a_second_and_given_up_after_three(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(click.ClickException, match=f"cannot connect to {CLOSED}: connection refused"):
        async with started(Admin, {"bootstrap_servers": CLOSED}):
            pass
    assert 3 <= loop.time() - began < 3.5
    assert capsys.readouterr().err == f"waiting for {CLOSED}: connection refused (ECONNREFUSED)\n"


async def test_an_address_without_a_port_is_said_to_have_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel._config.client.DEFAULT_PORT", 1)
    with pytest.raises(click.ClickException, match="localhost names no port: 9092 is assumed"):
        async with started(Admin, {"bootstrap_servers": "localhost"}):
            pass


async def test_a_given_bootstrap_timeout_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Exception, match="within 8000 ms"):
        async with started(Admin, {"bootstrap_servers": CLOSED, "bootstrap_timeout_ms": 8_000}):
            pass
    assert 6 < loop.time() - began < 9


async def test_a_broker_that_starts_within_the_time_is_found(
    fake_broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    async with started(Admin, {"bootstrap_servers": f"{CLOSED},{fake_broker.address}"}) as admin:
        assert (await admin.describe_cluster()).cluster_id
    assert capsys.readouterr().err == ""


class UnusedAddress(msgspec.Struct):
    """The address that a broker advertises and does not listen on."""

    node_id: int = 0
    port: int = 1


async def list_groups(given: dict[str, Any]) -> None:
    async with started(Admin, given) as admin:
        await admin.list_consumer_groups()


async def produce(given: dict[str, Any]) -> None:
    async with started(Producer, given) as producer:
        await producer.send_and_wait("t", b"x", partition=0)


async def leave_unsent(given: dict[str, Any]) -> None:
    async with started(Producer, given) as producer:
        sent = await producer.send("t", b"x", partition=0)
        sent.add_done_callback(lambda future: future.exception())
        await asyncio.sleep(100)  # virtual: the command waits for its input


async def begin_transactions(given: dict[str, Any]) -> None:
    async with started(Producer, {**given, "transactional_id": "a"}):
        pass


async def consume(given: dict[str, Any]) -> None:
    async with started(Consumer, given) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.getone()


async def join_group(given: dict[str, Any]) -> None:
    async with started(Consumer, {**given, "group_id": "g"}) as consumer:
        consumer.subscribe(["t"])
        await consumer.getone()


USES = [list_groups, produce, leave_unsent, begin_transactions, consume, join_group]


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_broker_whose_advertised_address_does_not_answer_ends_the_command(
    fake_broker: FakeBroker,
    use: Callable[[dict[str, Any]], Awaitable[None]],
    hangs: bool,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1] if hangs else 1
    fake_broker.peers = [UnusedAddress(port=port)]  # type: ignore[list-item]

    async def coordinator(_: object) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=port)

    fake_broker.answers[10] = coordinator
    began = loop.time()
    with pytest.raises(
        UnreachableError, match=f"{fake_broker.address} answers, but the address .* does not: broker 0 at"
    ):
        await use({"bootstrap_servers": fake_broker.address, **QUICK})
    assert 3 <= loop.time() - began < 4.5
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"waiting for broker 0 at 127.0.0.1:{port}: ")
    assert not [row for row in caplog.records if row.name == "semel._net.reachability"], "the command has said it"
    server.close()


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_broker_that_answers_no_request_for_metadata_ends_the_command(
    fake_broker: FakeBroker, use: Callable[[dict[str, Any]], Awaitable[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The connection opens and versions are negotiated, as with a broker with a blocked event loop, or a proxy."""

    async def silent(_: object) -> None:
        await asyncio.Event().wait()

    fake_broker.answers[3] = silent
    loop = asyncio.get_running_loop()
    began = loop.time()
    waits = f"{fake_broker.address}: connected, waiting for the answer to Metadata for"
    with pytest.raises(UnreachableError, match=f"cannot connect to {waits} 3"):
        await use({"bootstrap_servers": fake_broker.address, **QUICK})
    assert 3 <= loop.time() - began < 4.5
    assert capsys.readouterr().err == f"waiting for {waits} 1.0 s\n"


async def test_a_broker_that_was_reached_may_restart(
    fake_broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    async with started(Producer, {"bootstrap_servers": fake_broker.address, **QUICK}) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
        for _ in range(2):
            await fake_broker.close()
            sending = asyncio.create_task(producer.send_and_wait("t", b"y", partition=0))
            await asyncio.sleep(20)  # virtual: so long is the broker away
            await fake_broker.listen()
            await sending
    line = f"waiting for broker 0 at {fake_broker.address}: connection refused (ECONNREFUSED)\n"
    assert capsys.readouterr().err == 2 * line


async def test_a_broker_that_no_request_needs_does_not_end_the_command(
    fake_broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_broker.peers = [fake_broker, UnusedAddress(node_id=7)]  # type: ignore[list-item]
    async with started(Producer, {"bootstrap_servers": fake_broker.address, **QUICK}) as producer:
        for _ in range(20):
            await producer.send_and_wait("t", b"x", partition=0)
            await asyncio.sleep(1)  # virtual
    assert capsys.readouterr().err == ""


def partition(number: int, leader: int, *in_sync: int) -> PartitionMetadata:
    return PartitionMetadata("flights", number, leader, 0, (0, 1, 2), in_sync, ())


def test_the_reason_of_a_stall_names_the_partition_and_the_replicas() -> None:
    whole = partition(0, 0, 0, 1, 2)
    assert reason((whole, partition(1, 1, 1)), 2) == "flights-1 has 1 of 2 in-sync replicas (min.insync.replicas)"
    assert reason((partition(0, -1), partition(1, -1)), 2) == "flights-0 and 1 more partition have no leader"
    assert "have not confirmed" in reason((whole,), 2)


async def test_a_stall_is_reported_once_after_two_seconds_and_again_when_its_reason_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "flights-0 has 1 of 2 in-sync replicas"

    async def given(*_: object) -> str:
        return why

    monkeypatch.setattr(stall, "_reason", given)
    counts = (0, 0)
    task = asyncio.create_task(say_stalls(ClientSettings({}, {}), "flights", lambda: counts, all_acks=True))
    await asyncio.sleep(60)  # virtual: so long passes while the watch looks
    assert capsys.readouterr().err == "", "nothing was sent"
    counts = (5, 0)
    await asyncio.sleep(3)  # virtual: so long passes while the watch looks
    assert capsys.readouterr().err == f"waiting: {why}\n"
    await asyncio.sleep(60)  # virtual: so long passes while the watch looks
    assert capsys.readouterr().err == ""
    why = "flights-0 has no leader"
    await asyncio.sleep(10)  # virtual: so long passes while the watch looks
    assert capsys.readouterr().err == f"waiting: {why}\n"
    counts = (5, 5)
    await asyncio.sleep(60)  # virtual: so long passes while the watch looks
    assert capsys.readouterr().err == ""
    task.cancel()
