"""EDGE: published ports: listens on ports of this machine, and forwards each connection to its service.

Docker's proxy does the same. All bytes go through this process, so benchmarks connect to the service directly.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import msgspec

from tools.cluster.compose import ComposeError, Port, Project, ports


class ForwardedEnd(asyncio.Protocol):
    """One end of a forwarded connection: writes all received bytes to the `other` end. If the other end cannot keep up,
    this one stops reading.
    """

    def __init__(self, other: ForwardedEnd | None = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """Whether the peer has sent EOF."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if self.other is None or self.other.transport is None or self.other.ended:
            return False  # both directions have ended: this connection closes, and then the other one
        self.other.transport.write_eof()
        return True  # the other direction stays open

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            if exc is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()


class ClientForwarder(ForwardedEnd):
    """The end of a client. It opens the connection to the service, and keeps the client's bytes until that is open.

    It does not pause reading before the first read, because asyncio of Python 3.11.2 ignores such a pause.
    """

    def __init__(self, address: str, port: int, running: dict[asyncio.Task[None], None]) -> None:
        super().__init__()
        self._address, self._port, self._running = address, port, running
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._running[task] = None
        task.add_done_callback(lambda done: self._running.pop(done, None))

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            assert self.transport is not None
            self._early.append(data)
            self.transport.pause_reading()  # one read is enough
        else:
            super().data_received(data)

    def eof_received(self) -> bool:
        if self.other is None:
            self.ended = True
            return True  # forwarded once the connection to the service is open
        return super().eof_received()

    async def _connect(self) -> None:
        assert self.transport is not None
        inner = ForwardedEnd(self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: inner, self._address, self._port)
        except OSError:
            self.transport.abort()  # the service does not listen: the client sees a connection that was reset
            return
        assert inner.transport is not None
        if self.transport.is_closing():
            inner.transport.abort()
            return
        for each in (self.transport, inner.transport):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.other = inner
        inner.transport.writelines(self._early)
        if self.ended:
            inner.transport.write_eof()
        self.transport.resume_reading()


class PublishedPort(msgspec.Struct, frozen=True):
    """A published port of a service, with its listening socket."""

    service: str
    port: Port
    socket: socket.socket


def open_ports(project: Project, names: list[str]) -> list[PublishedPort]:
    """Listen on all published ports of these services. Raises ComposeError if a port cannot be opened."""
    found: list[PublishedPort] = []
    for name in names:
        for port in ports(project.services[name]):
            opened = socket.socket()
            found.append(PublishedPort(name, port, opened))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                opened.bind((port.host, port.published))
                opened.listen(256)
            except OSError as error:
                for each in found:
                    each.socket.close()
                raise ComposeError(
                    f"services.{name}: cannot publish {port.host}:{port.published}: {error.strerror}. Stop the process "
                    "that uses this port, or publish another one (the compose file names the variable)"
                ) from None
    return found


class PublishedPorts:
    """All published ports of a project, open from `open` to `close`."""

    def __init__(self, published: list[PublishedPort]) -> None:
        self._published = published
        self._servers: list[asyncio.Server] = []
        self._connecting: dict[asyncio.Task[None], None] = {}

    async def open(self, addresses: dict[str, str]) -> None:
        """Forward connections to the services at these addresses from now on."""
        loop = asyncio.get_running_loop()
        for each in self._published:
            make = partial(ClientForwarder, addresses[each.service], each.port.target, self._connecting)
            self._servers.append(await loop.create_server(make, sock=each.socket))

    async def close(self) -> None:
        """Accept no more connections. Open ones end with their services."""
        for server in self._servers:
            server.close()
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for each in self._published:
            each.socket.close()
