"""A command says what it waits for, and does not wait long where nothing listens."""

from __future__ import annotations

import asyncio

import click
import pytest
from client.fake_broker import FakeBroker
from semel import Admin
from semel.cli.produce import stall
from semel.cli.produce.stall import reason, say_stalls
from semel.cli.shared.client_settings import ClientSettings
from semel.cli.shared.starting import started
from semel.structs import PartitionMetadata

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
    assert capsys.readouterr().err == f"waiting for {CLOSED}: connection refused\n"


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


def partition(number: int, leader: int, *in_sync: int) -> PartitionMetadata:
    return PartitionMetadata("flights", number, leader, 0, (0, 1, 2), in_sync, ())


def test_the_reason_of_a_stall_names_the_partition_and_the_replicas() -> None:
    whole = partition(0, 0, 0, 1, 2)
    assert reason((whole, partition(1, 1, 1)), 2) == "flights-1 has 1 of 2 in-sync replicas (min.insync.replicas)"
    assert reason((partition(0, -1), partition(1, -1)), 2) == "flights-0 and 1 more partition have no leader"
    assert "have not confirmed" in reason((whole,), 2)


async def test_a_stall_is_told_once_after_two_seconds_and_again_when_its_reason_changes(
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
