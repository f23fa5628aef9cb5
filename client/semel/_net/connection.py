"""One TCP connection to one broker: requests pipelined, responses matched in order, versions agreed first.

Kafka answers the requests of a connection in the order they were sent, so the oldest pending request owns the next
frame; a correlation id that says otherwise, or a request that gets no answer in time, ends the connection.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from semel_protocol import __version__
from semel_protocol.api import API_OF, Api
from semel_protocol.errors import ErrorCode, ProtocolError
from semel_protocol.headers import encode_request_frame, read_correlation_id, response_body_at
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel_protocol.schema import Message

from semel._edge import Edge
from semel._net.frame_buffer import FrameBuffer
from semel.errors import (
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)

VERSION_MAX = {
    0: 11,  # Produce 12 is transaction version 2 (KIP-890)
    1: 12,  # Fetch 13 names topics by id
    8: 8,  # OffsetCommit 9 is the consumer group protocol of KIP-848
    9: 7,  # OffsetFetch 8 asks for several groups at once
    10: 3,  # FindCoordinator 4 asks for several keys at once
    20: 5,  # DeleteTopics 6 names topics by id
    24: 3,  # AddPartitionsToTxn 4 is for brokers
    26: 4,  # EndTxn 5 is transaction version 2
    28: 4,  # TxnOffsetCommit 5 is transaction version 2
}
"""The highest version this client speaks unless asked for more, where it declares more."""

WRITE_BUFFER_BYTES_MAX = 1 << 20
_CORRELATION_ID_MAX = 0x7FFFFFFF
NO_TLS_THERE = " (with security_protocol='SSL': does this listener speak TLS, and is its certificate trusted?)"


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("api", "correlation_id", "deadline", "future", "timeout_ms", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        correlation_id: int,
        deadline: float,
        timeout_ms: float,
        future: asyncio.Future[Any],
    ) -> None:
        self.api, self.version, self.correlation_id = api, version, correlation_id
        self.deadline, self.timeout_ms, self.future = deadline, timeout_ms, future


class Connection(asyncio.BufferedProtocol):
    """An open connection whose versions are agreed. Make one with `connect`.

    Every request raises KafkaTimeoutError when it is not answered in time, KafkaConnectionError when the connection
    ends first, UnsupportedVersionError when broker and client have no version in common.
    """

    def __init__(self, edge: Edge, name: str, client_id: str, frame_bytes_max: int) -> None:
        self.name = name
        self.last_used = edge.monotonic()
        self.on_lost: Callable[[], None] | None = None
        self._edge, self._client_id = edge, client_id
        self._loop = asyncio.get_running_loop()
        self._frames = FrameBuffer(frame_bytes_max)
        self._pending: deque[_Pending] = deque()
        self._versions: dict[int, tuple[int, int]] = {18: (0, 4)}
        self._features: dict[str, int] = {}
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._lost: KafkaError | None = None
        self._writable = True
        self._drain_waiters: list[asyncio.Future[None]] = []

    # What the client uses

    @property
    def closed(self) -> bool:
        return self._lost is not None

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    @property
    def writable(self) -> bool:
        """False while the peer takes less than we write: do not send, or await `drained`."""
        return self._writable

    def feature_level(self, name: str) -> int:
        """The level that the cluster has finalized a feature at (KIP-584), 0 when it has not."""
        return self._features.get(name, 0)

    def serves(self, request: type[Message], version_min: int = 0) -> bool:
        """Whether broker and client have a version of this API in common, from `version_min` on."""
        common = self._common(API_OF[request], API_OF[request].high if version_min else None)
        return common is not None and common[1] >= version_min

    def version(self, request: type[Message], version_max: int | None = None) -> int:
        """The version `request` would be sent in. Raises UnsupportedVersionError."""
        api = API_OF[request]
        common = self._common(api, version_max)
        if common is None:
            offered = self._versions.get(api.key)
            said = f"v{offered[0]} to v{offered[1]}" if offered else "none"
            raise UnsupportedVersionError(
                f"{api.name}: {self.name} serves {said}, this client speaks v{api.low} to v{_highest(api, version_max)}"
            )
        return common[1]

    def send(self, message: Message, *, timeout_ms: float, version_max: int | None = None) -> asyncio.Future[Any]:
        """Writes a request now; the future is its response. Cancelling the future only drops the answer.

        Raises at once when the connection is closed or the API is not served; does not look at `writable`.
        """
        api = API_OF[type(message)]
        version = self.version(type(message), version_max)
        pending = self._enqueue(api, version, timeout_ms)
        self._write(api, version, pending.correlation_id, message)
        return pending.future

    async def request(self, message: Message, *, timeout_ms: float, version_max: int | None = None) -> Any:
        """Sends a request when the peer keeps up, and returns its response."""
        if not self._writable:
            await self.drained()
        return await self.send(message, timeout_ms=timeout_ms, version_max=version_max)

    def send_unanswered(self, message: Message) -> None:
        """Writes a request that gets no response: Produce with acks=0."""
        self._check_open()
        api = API_OF[type(message)]
        self._write(api, self.version(type(message)), self._next_correlation_id(), message)

    async def drained(self) -> None:
        """Waits until the peer takes what we write. Raises KafkaConnectionError when it never will."""
        while not self._writable:
            self._check_open()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter
        self._check_open()

    def close(self, reason: KafkaError | None = None) -> None:
        """Closes at once; pending requests fail with `reason`. Harmless when already closed."""
        if self._lost is None:
            self._fail(reason or KafkaConnectionError(f"the connection to {self.name} was closed"))
            if self._transport is not None:
                self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do everything asyncio.Transport does without being of that class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None:
            why = f"{type(exc).__name__}: {exc}" if exc else "closed by the broker"
            self._fail(KafkaConnectionError(f"lost the connection to {self.name} ({why})"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._answer(frame)
        except ProtocolError as error:
            self.close(KafkaProtocolError(f"{self.name} sent what cannot be read: {error}"))
        except KafkaError as error:
            self.close(error)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake_writers()

    # Inside

    def _common(self, api: Api, version_max: int | None = None) -> tuple[int, int] | None:
        offered = self._versions.get(api.key)
        if offered is None:
            return None
        low, high = max(offered[0], api.low), min(offered[1], _highest(api, version_max))
        return (low, high) if low <= high else None

    def _check_open(self) -> None:
        if self._lost is not None:
            raise KafkaConnectionError(self._lost.message)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        return self._correlation_id

    def _enqueue(self, api: Api, version: int, timeout_ms: float) -> _Pending:
        self._check_open()
        now = self._edge.monotonic()
        self.last_used = now
        future: asyncio.Future[Any] = self._loop.create_future()
        pending = _Pending(api, version, self._next_correlation_id(), now + timeout_ms / 1000, timeout_ms, future)
        self._pending.append(pending)
        if self._timer is None or pending.deadline < self._timer_at:
            self._watch(pending.deadline, now)
        return pending

    def _write(self, api: Api, version: int, correlation_id: int, message: Message) -> None:
        assert self._transport is not None
        try:
            frame = encode_request_frame(api, version, correlation_id, self._client_id, message)
        except ProtocolError as error:
            if self._pending and self._pending[-1].correlation_id == correlation_id:
                self._pending.pop()
            raise UnsupportedVersionError(
                f"{api.name} v{version}, the highest that {self.name} serves, cannot carry this: {error}"
            ) from error
        self._transport.writelines(frame)

    def _answer(self, frame: bytes | bytearray) -> None:
        correlation_id = read_correlation_id(frame)
        if not self._pending:
            raise CorrelationIdError(f"{self.name} answered {correlation_id} although nothing was asked")
        pending = self._pending[0]
        if pending.correlation_id != correlation_id:
            raise CorrelationIdError(f"{self.name} answered {correlation_id}, expected {pending.correlation_id}")
        api, version = pending.api, pending.version
        if api.key == 18 and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # a broker that does not know our version answers in the oldest one (KIP-511)
        response = api.decode_response(frame, version, response_body_at(api, version, frame))
        self._pending.popleft()
        self.last_used = self._edge.monotonic()
        if not pending.future.done():
            pending.future.set_result(response)

    def _watch(self, deadline: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - now), self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        if not self._pending:
            return
        now = self._edge.monotonic()
        first = min(self._pending, key=lambda pending: pending.deadline)
        if first.deadline > now:
            self._watch(first.deadline, now)
            return
        message = f"{self.name} did not answer {first.api.name} within {first.timeout_ms:.0f} ms"
        if not first.future.done():
            first.future.set_exception(KafkaTimeoutError(message))
        self.close(KafkaConnectionError(message))

    def _fail(self, error: KafkaError) -> None:
        self._lost = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            future = self._pending.popleft().future
            if not future.done():
                future.set_exception(type(error)(error.message))
        self._wake_writers()
        if self.on_lost is not None:
            self.on_lost()

    def _wake_writers(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def agree_on_versions(self, timeout_ms: float) -> None:
        """Asks for the broker's versions, stepping down after UNSUPPORTED_VERSION (KIP-511)."""
        api = API_OF[ApiVersionsRequest]
        version = api.high
        request = ApiVersionsRequest(client_software_name="semel", client_software_version=__version__)
        while True:
            pending = self._enqueue(api, version, timeout_ms)
            self._write(api, version, pending.correlation_id, request)
            answer: ApiVersionsResponse = await pending.future
            offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            if answer.error_code == ErrorCode.NONE:
                self._versions = offered
                if answer.finalized_features_epoch >= 0:
                    self._features = {row.name: row.max_version_level for row in answer.finalized_features}
                return
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise UnsupportedVersionError(f"{self.name} refused ApiVersions v{version} ({answer.error_code})")
            version = min(offered.get(api.key, (0, 0))[1], version - 1)


def _highest(api: Api, version_max: int | None = None) -> int:
    return VERSION_MAX.get(api.key, api.high) if version_max is None else min(version_max, api.high)


async def connect(
    edge: Edge,
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_ms: float,
    frame_bytes_max: int = 104_857_600,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Connects and agrees on versions within `timeout_ms`. Raises KafkaConnectionError, UnsupportedVersionError."""
    name = f"{host}:{port}"
    connection = Connection(edge, name, client_id, frame_bytes_max)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await edge.create_connection(lambda: connection, host, port, tls)
            await connection.agree_on_versions(timeout_ms)
    except TimeoutError:
        connection.close()
        raise KafkaConnectionError(f"cannot connect to {name} within {timeout_ms:.0f} ms") from None
    except (OSError, KafkaTimeoutError) as error:
        connection.close()
        hint = "" if tls is None else NO_TLS_THERE
        raise KafkaConnectionError(f"cannot connect to {name}: {error}{hint}") from error
    except BaseException:
        connection.close()
        raise
    return connection
