"""PURE. Pipelined requests of one connection: numbers and encodes requests, matches answers in order.

Kafka answers the requests of one connection in the order in which they were sent. The oldest pending request therefore
owns the next frame. An answer with another correlation id means that the two sides disagree, and the connection must
be closed. Sockets, futures and timers belong to the caller.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, TypeVar

from semel_protocol.api import Api
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, ProtocolError
from semel_protocol.headers import encode_request_frame, read_correlation_id, response_body_at
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Message

CORRELATION_ID_MAX = 0x7FFFFFFF


class PendingRequest:
    """A request without an answer so far. A caller derives its own class, with what it keeps of each request."""

    __slots__ = ("api", "correlation_id", "version")

    def __init__(self, api: Api, version: int) -> None:
        self.api, self.version = api, version
        self.correlation_id = -1  # set by `RequestPipeline.begin`


class UnexpectedAnswerError(ProtocolError):
    """An answer does not belong to the oldest pending request.

    correlation_id: of the answer. expected: of the oldest pending request, None without one.
    """

    def __init__(self, correlation_id: int, expected: int | None) -> None:
        super().__init__(f"an answer to request {correlation_id} is not due")
        self.correlation_id, self.expected = correlation_id, expected


P = TypeVar("P", bound=PendingRequest)


class RequestPipeline(Generic[P]):
    """The pending requests of one connection, oldest first."""

    __slots__ = ("_client_id", "_correlation_id", "pending")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self.pending: deque[P] = deque()

    def begin(self, request: P, message: Message) -> list[Buffer]:
        """The frame of a request, as chunks to write now. The request is pending from here on.

        Raises ProtocolError when a value does not fit into the version; the request is not pending then.
        """
        frame = self.encode(request.api, request.version, message)
        request.correlation_id = self._correlation_id
        self.pending.append(request)
        return frame

    def encode(self, api: Api, version: int, message: Message) -> list[Buffer]:
        """The frame of a request that gets no answer (Produce with acks=0). Raises ProtocolError as `begin`."""
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        return encode_request_frame(api, version, self._correlation_id, self._client_id, message)

    def answered(self, frame: bytes | bytearray) -> tuple[P, Any]:
        """The oldest pending request and its decoded response; the request is not pending any more.

        Raises UnexpectedAnswerError for another correlation id, ProtocolError for a frame that cannot be decoded. The
        request stays pending then.
        """
        correlation_id = read_correlation_id(frame)
        request = self.pending[0] if self.pending else None
        if request is None or request.correlation_id != correlation_id:
            raise UnexpectedAnswerError(correlation_id, None if request is None else request.correlation_id)
        api, version = request.api, request.version
        if api.key == ApiKey.API_VERSIONS and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # a broker that does not support the version answers in version 0 (KIP-511)
        response = api.decode_response(frame, version, response_body_at(api, version, frame))
        self.pending.popleft()
        return request, response
