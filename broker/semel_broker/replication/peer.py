"""One connection to the peer listener of another broker: requests are pipelined, responses come in their order.

All brokers of a cluster run the same release, so no versions are negotiated. A broker answers the requests of one
connection in order. A response out of order, or one that is too late, closes the connection.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseTransport, Future, Protocol, TimerHandle, Transport
from collections import deque
from typing import Any, cast

from semel_protocol.api import Api
from semel_protocol.errors import ProtocolError
from semel_protocol.frames import FrameReader
from semel_protocol.headers import encode_request_frame, read_correlation_id, response_body_at
from semel_protocol.schema import Message

from semel_broker.replication.settings import FRAME_BYTES_MAX

CORRELATION_ID_MAX = 0x7FFFFFFF


class Pending:
    """A request that waits for its response."""

    __slots__ = ("api", "correlation_id", "future", "timer", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, future: Future[Any], timer: TimerHandle) -> None:
        self.api, self.version, self.correlation_id = api, version, correlation_id
        self.future, self.timer = future, timer


class PeerConnection(Protocol):
    """The protocol of one connection that this broker has opened. `name` is used in errors."""

    def __init__(self, name: str, client_id: str, loop: AbstractEventLoop) -> None:
        self.name = name
        self._client_id = client_id
        self._loop = loop
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._pending: deque[Pending] = deque()
        self._transport: Transport | None = None
        self._correlation_id = 0
        self._lost: OSError | None = None

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def send(self, api: Api, version: int, message: Message, timeout_ms: float) -> Future[Any]:
        """Write a request now; the future gives its decoded response. Both raise OSError if the connection is lost.

        If the future is cancelled, the response is dropped; later requests still wait for it.
        """
        if self._lost is not None:
            raise type(self._lost)(*self._lost.args)
        assert self._transport is not None, "not connected yet"
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        frame = encode_request_frame(api, version, self._correlation_id, self._client_id, message)
        timer = self._loop.call_later(timeout_ms / 1000, self._expired, api.name, timeout_ms)
        pending = Pending(api, version, self._correlation_id, self._loop.create_future(), timer)
        self._pending.append(pending)
        self._transport.writelines(frame)
        return pending.future

    def close(self, reason: str) -> None:
        """Close at once: waiting requests get ConnectionResetError."""
        self._end(ConnectionResetError(f"{self.name}: {reason}"))

    # --- the transport's callbacks ---------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._lost is not None:
            return
        try:
            for frame in self._frames.feed(data):
                self._answer(frame)
        except ProtocolError as error:
            self._end(ConnectionAbortedError(f"{self.name} sent a response that cannot be read: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionResetError(f"{self.name} closed the connection" + (f": {exc}" if exc else "")))

    # --- inside ----------------------------------------------------------------------------------------------

    def _answer(self, frame: memoryview) -> None:
        correlation_id = read_correlation_id(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise ProtocolError(f"a response to request {correlation_id} is not expected")
        pending = self._pending[0]
        api, version = pending.api, pending.version
        response = api.decode_response(frame, version, response_body_at(api, version, frame))
        self._pending.popleft()
        pending.timer.cancel()
        if not pending.future.done():
            pending.future.set_result(response)

    def _expired(self, api_name: str, timeout_ms: float) -> None:
        self._end(TimeoutError(f"{self.name} did not answer {api_name} within {timeout_ms:.0f} ms"))

    def _end(self, error: OSError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        while self._pending:
            pending = self._pending.popleft()
            pending.timer.cancel()
            if not pending.future.done():
                pending.future.set_exception(type(error)(*error.args))
        if self._transport is not None:
            self._transport.abort()
