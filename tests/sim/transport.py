"""An end of a connection as an asyncio transport: the socket in the kernel, and asyncio's buffers over it."""

from __future__ import annotations

import errno
from asyncio import AbstractServer, BaseProtocol, BufferedProtocol, Protocol, Transport
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sim.pipe import FIN, RST, SimPipe

if TYPE_CHECKING:
    from sim.host import Host
    from sim.loop import SimLoop

READ_BYTES_MAX = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024
FIRST_CLIENT_PORT = 40_000


class SimTransport(Transport):
    """One end of a connection. `gone`: closed, or its process has ended; the kernel answers segments with RST."""

    outgoing: SimPipe
    incoming: SimPipe

    def __init__(self, loop: SimLoop, number: int, names: dict[str, Any]) -> None:
        super().__init__(names)
        self.loop, self.host, self.number = loop, loop.host, number
        self.gone = False
        self.protocol: BaseProtocol | None = None
        self._unsent = bytearray()  # written, and not yet taken by the kernel
        self._inbox: list[bytes] = []  # received by the kernel, and not yet read
        self._end: str | None = None  # FIN or RST after the inbox
        self._reading = True
        self._read_scheduled = False
        self._closing = False
        self._eof_written = False
        self._lost = False
        self._write_paused = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self.host.endpoints[self] = None

    # asyncio's interface

    def set_protocol(self, protocol: BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._schedule_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (HIGH_WATER_BYTES if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low
        assert 0 <= self._low <= self._high

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._eof_written, "write after write_eof"
        if self._lost or self.gone or self._closing or not data:
            return
        if self._end is RST:
            self.loop.call_soon(self._lose, BrokenPipeError(errno.EPIPE, "Broken pipe"))
            return
        room = 0 if self._unsent else self.outgoing.room
        if room >= len(data):
            self.outgoing.send(bytes(data))
            return
        view = memoryview(data)
        if room > 0:
            self.outgoing.send(bytes(view[:room]))
        self._unsent += view[max(room, 0) :]
        if len(self._unsent) > self._high and not self._write_paused:
            self._write_paused = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Half close: the other end reads all bytes, and may continue to send."""
        if not self._eof_written and not self._closing:
            self._eof_written = True
            if not self._unsent:
                self.outgoing.finish(FIN)

    def close(self) -> None:
        """Close after all written bytes are sent."""
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close now. Bytes in the kernel are still sent; bytes in the transport are dropped."""
        self._closing = True
        self._unsent.clear()
        if not self._lost:
            self.loop.call_soon(self._lose, None)

    # Called by the network

    @property
    def has_unread(self) -> bool:
        """Whether the kernel has bytes, or the end of the connection, that the process has not read."""
        return bool(self._inbox) or self._end is not None

    @property
    def waits_for_room(self) -> bool:
        return bool(self._unsent)

    def room_again(self) -> None:
        """The kernel may have room for more of the written bytes."""
        if self._unsent and not self.gone:
            self.loop.call_soon(self._write_on)

    def received(self, data: bytes) -> None:
        self._inbox.append(data)
        self._schedule_read()

    def received_end(self, how: str) -> None:
        """FIN or RST arrives, after the data."""
        self._end = how
        if how is RST:
            self.outgoing.break_off()
            if self._closing and self._unsent:
                self.loop.call_soon(self._lose, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self._schedule_read()

    def received_reset(self) -> None:
        """RST from a kernel that does not know the connection, or from a middlebox."""
        self.outgoing.break_off()
        if not self.gone:
            self.loop.call_soon(self._lose, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def reset_client(self) -> None:
        """The process sees the connection reset. The bytes that it has sent still arrive."""
        if not self.gone:
            self.loop.call_soon(self._lose, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def timed_out(self, error: OSError) -> None:
        """The kernel has given up its retransmissions."""
        if not self.gone:
            self.loop.call_soon(self._lose, error)

    def process_ended(self, *, silently: bool) -> None:
        """The process is dead. Its kernel closes the socket; without power (`silently`) nothing is sent."""
        self.gone = True
        self._unsent.clear()
        if silently:
            self.outgoing.break_off()
        else:
            self._finish()

    def _finish(self) -> None:
        if self._eof_written and self._inbox:
            self.outgoing.reset()
        else:
            self.outgoing.finish(RST if self._inbox else FIN)

    # In the process

    def connected(self, protocol: BaseProtocol) -> None:
        self.protocol = protocol
        protocol.connection_made(self)
        self._schedule_read()

    def _schedule_read(self) -> None:
        if self._read_scheduled or self.protocol is None or self._closing or not self._reading:
            return
        if self._inbox or self._end is not None:
            self._read_scheduled = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if not self._reading or self._closing:
            return
        if self._inbox:
            self._read_some()
            self._schedule_read()
        elif self._end is RST:
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif self._end is FIN:
            self._end = None
            assert isinstance(self.protocol, Protocol | BufferedProtocol)
            if not self.protocol.eof_received():
                self.close()

    def _read_some(self) -> None:
        data = self._inbox[0] if len(self._inbox) == 1 else b"".join(self._inbox)
        self._inbox.clear()
        if isinstance(self.protocol, BufferedProtocol):
            buffer = memoryview(self.protocol.get_buffer(-1))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            if count < len(data):
                self._inbox.append(data[count:])
            self.incoming.was_read(count)
            self.protocol.buffer_updated(count)
        else:
            assert isinstance(self.protocol, Protocol)
            if len(data) > READ_BYTES_MAX:
                self._inbox.append(data[READ_BYTES_MAX:])
                data = data[:READ_BYTES_MAX]
            self.incoming.was_read(len(data))
            self.protocol.data_received(data)

    def _write_on(self) -> None:
        if self._lost or not self._unsent:
            return
        count = min(self.outgoing.room, len(self._unsent))
        if count > 0:
            self.outgoing.send(bytes(self._unsent[:count]))
            del self._unsent[:count]
        if self._write_paused and len(self._unsent) <= self._low:
            self._write_paused = False
            assert self.protocol is not None
            self.protocol.resume_writing()
        if not self._unsent:
            if self._closing:
                self._lose(None)
            elif self._eof_written:
                self.outgoing.finish(FIN)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = self.gone = True
        self.host.endpoints.pop(self, None)
        self._unsent.clear()
        self._finish()
        self._inbox.clear()
        if self.protocol is not None:
            self.protocol.connection_lost(error)


class SimServer(AbstractServer):
    """A listening socket, and asyncio's server around it."""

    def __init__(self, loop: SimLoop, factory: Callable[[], BaseProtocol], host: Host, port: int) -> None:
        self.loop, self.factory, self.host, self.port = loop, factory, host, port
        self.sockets = (_ListeningSocket(host.name, port),)
        self.accepts = True

    def accept(self, endpoint: SimTransport) -> None:
        """Run in the process: take a connection that the kernel has accepted."""
        endpoint.connected(self.factory())

    async def start_serving(self) -> None:
        self.accepts = True

    def close(self) -> None:
        if self.host.listeners.get(self.port) is self:
            del self.host.listeners[self.port]

    async def wait_closed(self) -> None:
        """Return at once: listening ends with `close`."""

    def is_serving(self) -> bool:
        return self.accepts and self.host.listeners.get(self.port) is self

    def get_loop(self) -> SimLoop:
        return self.loop


class _ListeningSocket:
    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name
