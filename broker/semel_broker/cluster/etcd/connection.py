"""One HTTP/1.1 connection to one etcd: asyncio around h11, with one request at a time.

h11 reads and writes HTTP. This file moves bytes between h11 and the transport, and bounds the memory of a response.
"""

from __future__ import annotations

from asyncio import BaseTransport, Future, Protocol, Transport, get_running_loop
from typing import Final, cast
from urllib.parse import urlsplit

import h11
import msgspec

PART_BYTES_MAX: Final = 64 << 10
"""Received bytes that h11 gets in one call."""
HEAD_BYTES_MAX: Final = 64 << 10
"""Bytes of a response's head, of a chunk's head or of trailers that are kept while it is incomplete."""
UNREAD_BYTES_MAX: Final = 128 << 10
"""Received bytes that h11 has not got yet. Above this bound the connection is not read."""
BODY_BYTES_MAX: Final = 256 << 20
"""Bytes of one response, or of one line of a stream. The listing of a large cluster is smaller."""


class BadResponseError(Exception):
    """The received bytes are not an HTTP/1.1 response, end too early, or exceed a bound of this file."""


CONNECTION_ERRORS: Final = (OSError, BadResponseError)
"""The errors of a connection. TimeoutError and the errors of TLS are subclasses of OSError."""


class EtcdEndpoint(msgspec.Struct, frozen=True):
    """The address at which one etcd listens for clients."""

    host: str
    port: int
    is_tls: bool

    @classmethod
    def parse(cls, url: str) -> EtcdEndpoint:
        """From `http://host:2379` or `https://host:2379`. Raises ValueError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            (host or "").encode("idna")  # as the resolver does, which raises ValueError too
        except ValueError as error:
            raise ValueError(f"{url!r} is not an etcd endpoint: {error}") from None
        if parts.scheme not in ("http", "https") or not host or not host.isascii() or parts.path not in ("", "/"):
            raise ValueError(f"{url!r} is not an etcd endpoint; write it as http://host:2379 or https://host:2379")
        return cls(host, port or 2379, parts.scheme == "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class EtcdConnection(Protocol):
    """One HTTP/1.1 connection. It is the protocol of its transport."""

    def __init__(self, endpoint: EtcdEndpoint) -> None:
        self.endpoint = endpoint
        self._http = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)
        self._transport: Transport | None = None
        self._received = bytearray()  # not given to h11 yet
        self._line = bytearray()  # the beginning of the next line of a stream
        self._has_ended = False  # nothing more will be received
        self._error: Exception | None = None
        self._waiter: Future[None] | None = None

    # --- called by the transport ---

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)  # uvloop's transports are of no class of asyncio

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > UNREAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._wake()
        return not self.endpoint.is_tls  # keep the connection open until the gateway closes it; TLS does not allow this

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._error = exc
        self._transport = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the gateway ---

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent: the last response is complete, and etcd has neither closed the connection nor
        sent more bytes.
        """
        return (
            not self._has_ended
            and not self._received
            and self._http.our_state is h11.IDLE
            and self._http.trailing_data == (b"", False)
        )

    def send(self, path: str, body: bytes, token: str = "") -> None:
        """Write a request. `Hasleader` makes a member without a leader end its streams instead of keeping them idle.

        `token`: of a user of etcd; empty: none.
        """
        http = self._http
        headers = [
            ("Host", str(self.endpoint)),
            ("Content-Type", "application/json"),
            ("Grpc-Metadata-Hasleader", "true"),
            ("Content-Length", str(len(body))),
        ]
        if token:
            headers.append(("Authorization", token))
        head = http.send(h11.Request(method="POST", target=path, headers=headers))
        data = head + http.send(h11.Data(body)) + http.send(h11.EndOfMessage())
        if self._transport is not None:
            self._transport.write(data)

    async def status(self) -> int:
        """The status of the response, once its head has been received. Raises one of CONNECTION_ERRORS."""
        while not isinstance(event := await self._next_event(), h11.Response):
            assert isinstance(event, h11.InformationalResponse), event
        length = next((int(value) for name, value in event.headers if name == b"content-length"), 0)
        if length > BODY_BYTES_MAX:
            raise BadResponseError(f"the response has {length} bytes; at most {BODY_BYTES_MAX} are accepted")
        return event.status_code

    async def body(self) -> bytes:
        """The whole body. After it the connection is usable again. Raises one of CONNECTION_ERRORS."""
        body = bytearray()
        while part := await self._part():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise BadResponseError(f"the response has more than {BODY_BYTES_MAX} bytes, which is the maximum")
        return bytes(body)

    async def line(self) -> bytes:
        """The next non-empty line of the body; b"" at the body's end. A line may span several chunks.

        Raises one of CONNECTION_ERRORS.
        """
        start = 0
        while True:
            end = self._line.find(b"\n", start)
            if end > 0:
                line = bytes(self._line[:end])
                del self._line[: end + 1]
                return line
            if end == 0:
                del self._line[:1]  # an empty line between two messages
                start = 0
                continue
            start = len(self._line)
            if start > BODY_BYTES_MAX:
                raise BadResponseError(f"a line has more than {BODY_BYTES_MAX} bytes, which is the maximum")
            part = await self._part()
            if not part:
                return b""
            self._line += part

    def close(self) -> None:
        """Abort the connection, with its pending request or stream."""
        if self._transport is not None:
            self._transport.abort()

    async def _part(self) -> bytes:
        """Some bytes of the body; b"" at its end."""
        event = await self._next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        if self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return b""

    async def _next_event(self) -> h11.Event:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise BadResponseError(f"the response is not valid HTTP/1.1: {error}") from error
            if isinstance(event, h11.Event):
                return event
            assert event is h11.NEED_DATA, event
            await self._receive()

    async def _receive(self) -> None:
        """Give received bytes, or the end of the stream, to h11. Waits for them if there are none yet."""
        if not self._received and not self._has_ended:
            self._waiter = get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._received:
            self._http.receive_data(bytes(self._received[:PART_BYTES_MAX]))
            del self._received[:PART_BYTES_MAX]
            if len(self._received) <= UNREAD_BYTES_MAX and self._transport is not None:
                self._transport.resume_reading()
        elif self._error is not None:
            raise self._error
        elif self._http.their_state is h11.SEND_RESPONSE:
            raise ConnectionResetError("the connection was closed before it carried a response")
        else:
            self._http.receive_data(b"")  # only an HTTP/1.0 body may end with the connection
