"""One connection to another broker's peer listener: sends pipelined requests and matches the answers in order.

All brokers of a cluster run the same release, so versions are not negotiated. A broker answers the requests of one
connection in order. An answer out of order, or one that does not come in time, ends the connection.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseTransport, BufferedProtocol, Future, TimerHandle, Transport
from collections.abc import Callable
from typing import Any, Final, cast

from semel_protocol.api import Api
from semel_protocol.errors import ProtocolError
from semel_protocol.framing import SCRATCH_BYTES, FrameBuffer
from semel_protocol.pipelining import PendingRequest, RequestPipeline
from semel_protocol.schema import Message

FRAME_BYTES_MAX: Final = 256 << 20
"""Of one response: the first batch comes whole, however large it is. Memory is allocated as bytes arrive."""


class _PendingPeerRequest(PendingRequest):
    """A pending request with the future of its response and the timer of its timeout."""

    __slots__ = ("future", "timer")

    timer: TimerHandle  # set as soon as the request is pending

    def __init__(self, api: Api, version: int, future: Future[Any]) -> None:
        self.api, self.version, self.future = api, version, future


class PeerConnection(BufferedProtocol):
    """The protocol of one connection that this broker has opened. `name`: for log lines and errors.

    `answered`: called at the first answer. `refused`: called if the connection is lost before it; returns the error for
    the callers.
    """

    def __init__(
        self,
        name: str,
        client_id: str,
        loop: AbstractEventLoop,
        answered: Callable[[], None] | None = None,
        refused: Callable[[Exception | None], OSError] | None = None,
    ) -> None:
        self.name = name
        self._answered, self._refused = answered, refused
        self._loop = loop
        self._frames = FrameBuffer(FRAME_BYTES_MAX, unfilled_bytes_max=SCRATCH_BYTES)
        self._requests: RequestPipeline[_PendingPeerRequest] = RequestPipeline(client_id)
        self._transport: Transport | None = None
        self._lost: OSError | None = None

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    @property
    def transport(self) -> Transport:
        assert self._transport is not None, "not connected yet"
        return self._transport

    def send(self, api: Api, version: int, message: Message, timeout_ms: float) -> Future[Any]:
        """Write a request now; the future is its decoded response. Raises OSError, as the future does.

        Cancelling the future drops the answer only: requests sent later still wait for that answer.
        """
        if self._lost is not None:
            raise type(self._lost)(*self._lost.args)
        transport = self.transport
        pending = _PendingPeerRequest(api, version, self._loop.create_future())
        frame = self._requests.begin(pending, message)
        pending.timer = self._loop.call_later(timeout_ms / 1000, self._expired, api.name, timeout_ms)
        transport.writelines(frame)
        return pending.future

    def close(self, reason: str) -> None:
        """Close at once; pending requests fail with ConnectionResetError."""
        self._end(ConnectionResetError(f"{self.name}: {reason}"))

    # --- the transport's callbacks ---------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._lost is not None:
            return
        try:
            for frame in self._frames.received(nbytes):
                pending, response = self._requests.answered(frame)
                pending.timer.cancel()
                if self._answered is not None:
                    self._answered()
                    self._answered = self._refused = None
                if not pending.future.done():
                    pending.future.set_result(response)
        except ProtocolError as error:
            self._end(ConnectionAbortedError(f"{self.name} sent a response that cannot be read: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refused is not None and self._lost is None:
            self._end(self._refused(exc))
        self._end(ConnectionResetError(f"{self.name} closed the connection" + (f": {exc}" if exc else "")))

    # --- inside ----------------------------------------------------------------------------------------------

    def _expired(self, api_name: str, timeout_ms: float) -> None:
        self._end(TimeoutError(f"{self.name} did not answer {api_name} within {timeout_ms:.0f} ms"))

    def _end(self, error: OSError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        while self._requests.pending:
            pending = self._requests.pending.popleft()
            pending.timer.cancel()
            if not pending.future.done():
                pending.future.set_exception(type(error)(*error.args))
        if self._transport is not None:
            self._transport.abort()
