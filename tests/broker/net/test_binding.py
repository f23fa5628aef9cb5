"""Listeners at `::`: both families at one port, as in Kafka."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.wire import Wire
from semel_broker.net.binding import TRIES, bind, is_wildcard
from semel_protocol.messages.k03_metadata import MetadataRequest

HAS_IPV6 = socket.has_ipv6 and bool([each for each in ("::1",) if socket.getaddrinfo(each, 0)])
WILDCARDS = ["::", "0:0:0:0:0:0:0:0", "::0"]


class FakeSocket:
    def __init__(self, port: int) -> None:
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return ("", self.port)


class FakeServer:
    def __init__(self, host: str, *ports: int) -> None:
        self.host, self.sockets, self.is_closed = host, [FakeSocket(port) for port in ports], False

    def close(self) -> None:
        self.is_closed = True


class PortTable:
    """The ports of the machine.

    `taken`: (host, port) in use by other processes. `refuses`: host -> the errors of its binds.
    """

    def __init__(
        self, *free: int, taken: tuple[tuple[str, int], ...] = (), refuses: dict[str, int] | None = None
    ) -> None:
        self.free, self.taken, self.refuses = list(free), taken, refuses or {}
        self.servers: list[FakeServer] = []

    async def create(self, host: str, port: int) -> Any:
        if host in self.refuses:
            raise OSError(self.refuses[host], "refused")
        if (host, port) in self.taken:
            raise OSError(errno.EADDRINUSE, "in use")
        ports = [port or self.free.pop(0) for _ in range(2 if host == "name" else 1)]
        self.servers.append(FakeServer(host, *ports))
        return self.servers[-1]

    def open(self) -> list[tuple[str, int]]:
        return [(each.host, one.port) for each in self.servers if not each.is_closed for one in each.sockets]


@pytest.mark.parametrize("host", WILDCARDS)
async def test_the_wildcard_of_ipv6_is_bound_in_both_families_at_one_port(host: str) -> None:
    machine = PortTable(1001)
    assert (await bind(machine.create, host, 0))[1] == 1001
    assert machine.open() == [(host, 1001), ("0.0.0.0", 1001)]
    machine = PortTable()
    assert (await bind(machine.create, host, 9092))[1] == 9092
    assert machine.open() == [(host, 9092), ("0.0.0.0", 9092)]


@pytest.mark.parametrize("host", ["a..b", "a" * 70])
async def test_a_text_that_cannot_be_the_name_of_a_host_is_no_address_of_this_machine(host: str) -> None:
    async def create(host: str, port: int) -> Any:
        host.encode("idna")  # as Python's resolver does
        raise AssertionError

    with pytest.raises(OSError, match="is not the name of a host") as raised:
        await bind(create, host, 0)
    assert raised.value.errno == errno.EADDRNOTAVAIL


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::1", "fe80::1"])
async def test_other_addresses_have_one_family(host: str) -> None:
    machine = PortTable(1001)
    await bind(machine.create, host, 0)
    assert machine.open() == [(host, 1001)]


async def test_a_port_that_is_free_in_one_family_alone_is_given_back() -> None:
    machine = PortTable(1001, 1002, taken=(("0.0.0.0", 1001),))
    assert (await bind(machine.create, "::", 0))[1] == 1002
    assert machine.open() == [("::", 1002), ("0.0.0.0", 1002)]
    ports = range(1, TRIES + 1)
    machine = PortTable(*ports, taken=tuple(("0.0.0.0", port) for port in ports))
    with pytest.raises(OSError, match="in use"):
        await bind(machine.create, "::", 0)
    assert machine.open() == []


async def test_a_given_port_that_another_process_has_in_one_family_is_an_error() -> None:
    machine = PortTable(taken=(("0.0.0.0", 9092),))
    with pytest.raises(OSError, match="in use"):
        await bind(machine.create, "::", 9092)
    assert machine.open() == []


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_a_machine_without_ipv6_listens_on_ipv4(number: int) -> None:
    machine = PortTable(1001, refuses={"::": number})
    assert (await bind(machine.create, "::", 0))[1] == 1001
    assert machine.open() == [("0.0.0.0", 1001)]
    with pytest.raises(OSError, match="refused"):
        await bind(PortTable(1001, refuses={"::1": number}).create, "::1", 0)


async def test_a_name_with_two_addresses_has_one_port() -> None:
    machine = PortTable(1001, 1002)
    assert (await bind(machine.create, "name", 0))[1] == 1001
    assert machine.open() == [("name", 1001), ("name", 1001)]


@pytest.mark.parametrize(
    ("host", "is_any"),
    [*((host, True) for host in (*WILDCARDS, "", "0.0.0.0")), ("::1", False), ("kafka", False), ("10.0.0.1", False)],
)
def test_wildcards(host: str, is_any: bool) -> None:
    assert is_wildcard(host) is is_any


@pytest.mark.real_time
@pytest.mark.skipif(not HAS_IPV6, reason="needs a machine with IPv6")
@pytest.mark.parametrize("host", WILDCARDS)
@pytest.mark.parametrize("form", ["listeners", "host.name"])
async def test_a_broker_at_the_wildcard_of_ipv6_serves_both_families(
    start_broker: StartBroker, host: str, form: str
) -> None:
    if form == "listeners":
        settings = {"listeners": f"PLAINTEXT://[{host}]:0", "advertised_listeners": "PLAINTEXT://localhost:0"}
    else:
        settings = {"host_name": host, "advertised_host_name": "localhost"}
    broker = await start_broker(**settings)
    for address in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(address, broker.port)
        answer = await Wire(reader, writer).call(MetadataRequest(topics=[]))
        assert [(each.host, each.port) for each in answer.brokers] == [("localhost", broker.port)]
        writer.close()
