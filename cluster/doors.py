"""EDGE: published ports: connections to a port of the host are passed on to the service, byte for byte.

Docker's proxy does the same. It costs a hop through this process, so measurements connect to the service directly.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import msgspec

from cluster.compose import ComposeError, Port, Project, ports


class Half(asyncio.Protocol):
    """One of two connections; what comes in goes out of the other, which slows it down when it cannot keep up."""

    def __init__(self, other: Half | None = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """Whether nothing more comes in here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if self.other is None or self.other.transport is None or self.other.ended:
            return False  # both directions are done: the connection closes, and with it the other
        self.other.transport.write_eof()
        return True  # the other direction may go on

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


class Outer(Half):
    """The half that a client has. It asks for the other one, and keeps what the client says until that is there.

    It does not pause before the first read: asyncio as of Python 3.11.2 reads on all the same.
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
            return True  # passed on once there is somebody
        return super().eof_received()

    async def _connect(self) -> None:
        assert self.transport is not None
        inner = Half(self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: inner, self._address, self._port)
        except OSError:
            self.transport.abort()  # nobody there: to the client this looks like a broker that went away
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


class Door(msgspec.Struct, frozen=True):
    """A published port of a service, and the socket that listens there."""

    service: str
    port: Port
    socket: socket.socket


def listening(project: Project, names: list[str]) -> list[Door]:
    """Every published port of these services, listening. Raises ComposeError where one is taken."""
    found: list[Door] = []
    for name in names:
        for port in ports(project.services[name]):
            opened = socket.socket()
            found.append(Door(name, port, opened))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                opened.bind((port.host, port.published))
                opened.listen(256)
            except OSError as error:
                for each in found:
                    each.socket.close()
                raise ComposeError(
                    f"services.{name}: cannot publish {port.host}:{port.published}: {error.strerror}. Whoever has that "
                    f"port must end, or the variable that the file takes it from must name another"
                ) from None
    return found


class Doors:
    """All published ports of a project, open from `open` to `close`."""

    def __init__(self, doors: list[Door]) -> None:
        self._doors = doors
        self._servers: list[asyncio.Server] = []
        self._connecting: dict[asyncio.Task[None], None] = {}

    async def open(self, addresses: dict[str, str]) -> None:
        """From now on connections are passed on to the services at these addresses."""
        loop = asyncio.get_running_loop()
        for door in self._doors:
            make = partial(Outer, addresses[door.service], door.port.target, self._connecting)
            self._servers.append(await loop.create_server(make, sock=door.socket))

    async def close(self) -> None:
        """Takes no more connections; those that are there end with the processes behind them."""
        for server in self._servers:
            server.close()
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for door in self._doors:
            door.socket.close()
