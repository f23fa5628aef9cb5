"""One connection to one broker: negotiates versions, authenticates, pipelines requests, matches answers in order.

Kafka answers the requests of a connection in the order in which they were sent. An answer out of order, or a request
without an answer in time, closes the connection. An answer with a throttle time ends the sending on this connection for
that time (KIP-219): the broker would not read it.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from semel_protocol import __version__
from semel_protocol.api import API_OF, Api
from semel_protocol.api_key import OWN_KEYS_MIN, ApiKey
from semel_protocol.errors import ErrorCode, ProtocolError
from semel_protocol.framing import FrameBuffer
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel_protocol.misfit import UnfitError
from semel_protocol.pipelining import PendingRequest, RequestPipeline, UnexpectedAnswerError
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Message

from semel._edge import Edge
from semel._net.counters import ClientRequestCounters
from semel._net.sasl import SASL_THERE, Credentials
from semel._net.session import SaslExchange, State
from semel._net.socket_errors import failure_of
from semel._net.tls import TLS_THERE, hint
from semel.errors import (
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NotSemelBrokerError,
    UnfitTypeError,
    UnfitValueError,
    UnsupportedVersionError,
)

VERSION_MAX: dict[int, int] = {
    ApiKey.PRODUCE: 11,  # Produce 12 is transaction version 2 (KIP-890)
    ApiKey.FETCH: 12,  # Fetch 13 names topics by id
    ApiKey.LIST_OFFSETS: 7,  # ListOffsets 8 and later ask for tiered offsets
    ApiKey.METADATA: 12,  # Metadata 13 adds an error of the whole answer
    ApiKey.OFFSET_COMMIT: 8,  # OffsetCommit 9 is the consumer group protocol of KIP-848
    ApiKey.OFFSET_FETCH: 7,  # OffsetFetch 8 asks for several groups at once
    ApiKey.FIND_COORDINATOR: 3,  # FindCoordinator 4 asks for several keys at once
    ApiKey.DESCRIBE_GROUPS: 5,  # DescribeGroups 6 fails for a group that does not exist, and 5 says that it is dead
    ApiKey.DELETE_TOPICS: 5,  # DeleteTopics 6 names topics by id
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,  # AddPartitionsToTxn 4 is for brokers
    ApiKey.END_TXN: 4,  # EndTxn 5 is transaction version 2
    ApiKey.TXN_OFFSET_COMMIT: 4,  # TxnOffsetCommit 5 is transaction version 2
}
"""The highest version that this client uses unless a caller asks for more; for APIs that declare a higher one."""

OWN_FEATURE = "transaction groups"
"""The feature that semel's own APIs are about."""

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX = 1 << 20
SIZE_BYTES = 4
"""The size prefix of a frame."""
CLOSED_BY_BROKER = "closed by the broker"
OPENING = "waiting for the connection to open"
OPENING_TLS = "waiting for the connection to open, or for the TLS handshake"
ASKING_VERSIONS = "connected, waiting for the answer to ApiVersions"
LOGGING_IN = "connected, waiting for the answer to the login (SASL)"
ASKING_METADATA = "connected, waiting for the answer to Metadata"


class _Pending(PendingRequest):
    """A pending request with the future of its response and its deadline on the edge's monotonic clock."""

    __slots__ = ("deadline", "future", "timeout_ms")

    def __init__(self, api: Api, version: int, deadline: float, timeout_ms: float, future: asyncio.Future[Any]) -> None:
        self.api, self.version = api, version
        self.deadline, self.timeout_ms, self.future = deadline, timeout_ms, future

    @property
    def made_at(self) -> float:
        """When the request was made."""
        return self.deadline - self.timeout_ms / 1000


class Connection(asyncio.BufferedProtocol):
    """An open connection with negotiated versions. `connect` makes one.

    Every request raises KafkaTimeoutError when it is not answered in time, KafkaConnectionError when the connection
    ends first, UnsupportedVersionError when broker and client have no version in common. `throttled_ms`: the sum of all
    throttle times, `throttles` their number.
    """

    def __init__(
        self, edge: Edge, name: str, client_id: str, frame_bytes_max: int, counters: ClientRequestCounters | None = None
    ) -> None:
        self.name = name
        self._counters = counters or ClientRequestCounters()
        self.last_used = edge.monotonic()
        self.on_lost: Callable[[], None] | None = None
        self._edge = edge
        self._loop = asyncio.get_running_loop()
        self._frames = FrameBuffer(frame_bytes_max)
        self._requests: RequestPipeline[_Pending] = RequestPipeline(client_id)
        self._versions: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 4)}
        self._features: dict[str, int] = {}
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._lost: KafkaError | None = None
        self._writable = True
        self.throttles = self.throttled_ms = 0
        self._throttled_until = 0.0
        self._throttle_timer: asyncio.TimerHandle | None = None  # None: not throttled
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._session: SaslExchange | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._held: deque[tuple[_Pending | None, Message]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._login_timeout_ms = 0.0
        self._has_served = False

    # Calls of the client

    @property
    def closed(self) -> bool:
        return self._lost is not None

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._requests.pending) + len(self._held)

    @property
    def writable(self) -> bool:
        """False while the peer reads too slowly or throttles this client: await `drained` before sending."""
        return self._writable and self._throttle_timer is None

    def feature_level(self, name: str) -> int:
        """The finalized level of a cluster feature (KIP-584); 0 when it is not finalized."""
        return self._features.get(name, 0)

    def serves(self, request: type[Message], version_min: int = 0) -> bool:
        """Whether broker and client have a version of this API in common, of at least `version_min`."""
        common = self._common(API_OF[request], API_OF[request].high if version_min else None)
        return common is not None and common[1] >= version_min

    def version(self, request: type[Message], version_max: int | None = None) -> int:
        """The version in which `request` is sent. Raises UnsupportedVersionError."""
        api = API_OF[request]
        common = self._common(api, version_max)
        if common is None:
            if api.key >= OWN_KEYS_MIN:
                raise NotSemelBrokerError(
                    f"{OWN_FEATURE} need semel's own API {api.name} ({api.key}): {self.name} does not have it; it is "
                    "Apache Kafka or another Kafka"
                )
            offered = self._versions.get(api.key)
            served = f"v{offered[0]} to v{offered[1]}" if offered else "none"
            raise UnsupportedVersionError(
                f"{api.name}: {self.name} serves {served}, this client uses v{api.low} to v{_highest(api, version_max)}"
            )
        return common[1]

    def send(self, message: Message, *, timeout_ms: float, version_max: int | None = None) -> asyncio.Future[Any]:
        """Write a request now; the future is its response. Cancelling the future only drops the answer.

        Raises at once when the connection is closed or the API is not served. Does not look at `writable`.
        """
        api = API_OF[type(message)]
        return self._send(api, self.version(type(message), version_max), message, timeout_ms)

    async def request(self, message: Message, *, timeout_ms: float, version_max: int | None = None) -> Any:
        """Send a request as soon as the connection is writable, and return its response."""
        if not self.writable:
            await self.drained()
        return await self.send(message, timeout_ms=timeout_ms, version_max=version_max)

    def send_unanswered(self, message: Message) -> None:
        """Write a request that gets no response: Produce with acks=0."""
        self._check_open()
        if self._must_hold():
            self._held.append((None, message))
            return
        self._write_unanswered(message)

    def _write_unanswered(self, message: Message) -> None:
        assert self._transport is not None
        api, version = API_OF[type(message)], self.version(type(message))
        try:
            frame = self._requests.encode(api, version, message)
        except UnfitError as error:
            raise self._does_not_fit(api, version, error) from error
        self._write(frame)

    def _write(self, frame: list[Buffer]) -> None:
        assert self._transport is not None
        self._counters.requests += 1
        self._counters.bytes_out += SIZE_BYTES + int.from_bytes(frame[0][:SIZE_BYTES], "big")
        self._transport.writelines(frame)

    async def drained(self) -> None:
        """Wait until the connection is writable. Raises KafkaConnectionError when it is closed."""
        while not self.writable:
            self._check_open()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter
        self._check_open()

    def close(self, reason: KafkaError | None = None) -> None:
        """Close at once; pending requests fail with `reason`. Calling it again has no effect."""
        if self._lost is None:
            self._fail(reason or KafkaConnectionError(f"the connection to {self.name} was closed"))
            if self._transport is not None:
                self._transport.abort()

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have all methods of asyncio.Transport without inheriting from it.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._counters.connections_opened += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None:
            why = f"{type(exc).__name__}: {exc}" if exc else CLOSED_BY_BROKER
            if isinstance(exc, ssl.SSLError):
                why = f"{why}; {hint(exc, self.name)}"
            elif exc is None and self._session is None and not self._has_served:
                why = f"{why} before its first answer; {SASL_THERE}"
            self._fail(KafkaConnectionError(f"lost the connection to {self.name} ({why})"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._counters.bytes_in += nbytes
        try:
            for frame in self._frames.received(nbytes):
                pending, response = self._requests.answered(frame)
                self._has_served = self._has_served or pending.api.key != API_OF[ApiVersionsRequest].key
                now = self.last_used = self._edge.monotonic()
                self._counters.answered(pending.api.key, now - pending.made_at, now)
                if throttle_ms := getattr(response, "throttle_time_ms", 0):
                    self._throttle(throttle_ms, pending.api)
                if not pending.future.done():
                    pending.future.set_result(response)
            if self._idle is not None and not self._requests.pending and not self._idle.done():
                self._idle.set_result(None)
        except UnexpectedAnswerError as error:
            expected = " while no request is pending" if error.expected is None else f", expected {error.expected}"
            self.close(CorrelationIdError(f"{self.name} answered {error.correlation_id}{expected}"))
        except ProtocolError as error:
            self.close(KafkaProtocolError(f"cannot read an answer of {self.name}: {error}"))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake_writers()

    # Inside

    def _throttle(self, throttle_ms: int, api: Api) -> None:
        level = logging.DEBUG if self.throttles else logging.INFO
        log.log(level, "%s throttles this client for %d ms (%s): a quota is exceeded", self.name, throttle_ms, api.name)
        self.throttles += 1
        self.throttled_ms += throttle_ms
        self._counters.throttles += 1
        self._counters.throttled_ms += throttle_ms
        until = self._loop.time() + throttle_ms / 1000
        if until > self._throttled_until:
            self._throttled_until = until
            if self._throttle_timer is not None:
                self._throttle_timer.cancel()
            self._throttle_timer = self._loop.call_at(until, self._end_throttle)

    def _end_throttle(self) -> None:
        self._throttle_timer = None
        if self._writable:
            self._wake_writers()

    def _common(self, api: Api, version_max: int | None = None) -> tuple[int, int] | None:
        offered = self._versions.get(api.key)
        if offered is None:
            return None
        low, high = max(offered[0], api.low), min(offered[1], _highest(api, version_max))
        return (low, high) if low <= high else None

    def _check_open(self) -> None:
        if self._lost is not None:
            raise KafkaConnectionError(self._lost.message)

    def _send(self, api: Api, version: int, message: Message, timeout_ms: float) -> asyncio.Future[Any]:
        self._check_open()
        assert self._transport is not None
        now = self._edge.monotonic()
        self.last_used = now
        pending = _Pending(api, version, now + timeout_ms / 1000, timeout_ms, self._loop.create_future())
        if self._timer is None or pending.deadline < self._timer_at:
            self._watch(pending.deadline, now)
        if self._must_hold():
            self._held.append((pending, message))
        else:
            self._begin(pending, message)
        return pending.future

    def _begin(self, pending: _Pending, message: Message) -> None:
        assert self._transport is not None
        try:
            frame = self._requests.begin(pending, message)
        except UnfitError as error:
            raise self._does_not_fit(pending.api, pending.version, error) from error
        self._write(frame)

    def _does_not_fit(self, api: Api, version: int, error: UnfitError) -> KafkaError:
        """Tell a value that only a newer version carries from one that no version carries."""
        if error.is_of_version:
            return UnsupportedVersionError(
                f"{api.name} v{version}, the highest that {self.name} serves, cannot carry this: {error.reason}"
            )
        kind = UnfitValueError if error.is_of_type else UnfitTypeError
        return kind(f"{api.name} cannot carry {error.reason}")

    def _watch(self, deadline: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - now), self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        waiting = [*self._requests.pending, *(pending for pending, _ in self._held if pending is not None)]
        if not waiting:
            return
        now = self._edge.monotonic()
        first = min(waiting, key=lambda pending: pending.deadline)
        if first.deadline > now:
            self._watch(first.deadline, now)
            return
        message = f"{self.name} did not answer {first.api.name} within {first.timeout_ms:.0f} ms"
        if not first.future.done():
            first.future.set_exception(KafkaTimeoutError(message))
        self.close(KafkaConnectionError(message))

    def _fail(self, error: KafkaError) -> None:
        self._lost = error
        if self._transport is not None:
            self._counters.connections_closed += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        if self._renewal is not None:
            self._renewal.cancel()
        ended = [*self._requests.pending, *(pending for pending, _ in self._held if pending is not None)]
        self._requests.pending.clear()
        self._held.clear()
        for pending in ended:
            if not pending.future.done():
                pending.future.set_exception(type(error)(error.message))
        self._wake_writers()
        if self.on_lost is not None:
            self.on_lost()

    def _wake_writers(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The session (SASL)

    async def log_in(self, credentials: Credentials, timeout_ms: float) -> None:
        """Authenticate the client. Raises as `SaslExchange.authenticate`, UnsupportedVersionError."""
        if not self.serves(SaslHandshakeRequest, 1):
            raise UnsupportedVersionError(
                f"{self.name} has no SASL on this listener: use a listener that has, or another security_protocol"
            )
        session = SaslExchange(credentials, self._edge, self.name)
        await session.authenticate(lambda message: self._ask(message, timeout_ms))
        self._session, self._login_timeout_ms = session, timeout_ms

    def _ask(self, message: Message, timeout_ms: float) -> asyncio.Future[Any]:
        """Send a request of SASL, which is never held, and does not count as traffic."""
        self._check_open()
        api, now = API_OF[type(message)], self._edge.monotonic()
        deadline = now + timeout_ms / 1000
        pending = _Pending(api, self.version(type(message)), deadline, timeout_ms, self._loop.create_future())
        self._begin(pending, message)
        if self._timer is None or deadline < self._timer_at:
            self._watch(deadline, now)
        return pending.future

    def _must_hold(self) -> bool:
        """Whether a request has to wait for the renewal of the session. Begins the renewal when it is due."""
        session = self._session
        if session is None:
            return False
        if session.is_due:
            session.move(State.DRAINING)
            self._renewal = self._loop.create_task(self._renew(session), name=f"renew the session with {self.name}")
        return session.holds

    async def _renew(self, session: SaslExchange) -> None:
        try:
            if self._requests.pending:
                self._idle = self._loop.create_future()
                await self._idle
            session.move(State.RENEWING)
            async with asyncio.timeout(self._login_timeout_ms / 1000):
                await session.authenticate(lambda message: self._ask(message, self._login_timeout_ms))
        except (KafkaError, TimeoutError) as error:
            why = error.message if isinstance(error, KafkaError) else "it took too long"
            self._renewal = None
            self.close(KafkaConnectionError(f"cannot renew the session with {self.name}: {why}"))
            return
        self._renewal = self._idle = None
        while self._held:
            pending, message = self._held.popleft()
            if pending is not None and pending.future.done():
                continue
            try:
                if pending is None:
                    self._write_unanswered(message)
                else:
                    self._begin(pending, message)
            except KafkaError as error:
                if pending is None:
                    log.warning("a request without an answer was not sent: %s", error)
                else:
                    pending.future.set_exception(error)

    async def agree_on_versions(self, timeout_ms: float) -> None:
        """Requests the broker's versions; after UNSUPPORTED_VERSION repeats the request in a lower version
        (KIP-511).
        """
        api = API_OF[ApiVersionsRequest]
        version = api.high
        request = ApiVersionsRequest(client_software_name="semel", client_software_version=__version__)
        while True:
            answer: ApiVersionsResponse = await self._send(api, version, request, timeout_ms)
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


def _tls_hint(error: Exception, host: str, tls: ssl.SSLContext | None) -> str:
    is_of_tls = tls is not None and not isinstance(error, ConnectionRefusedError | KafkaTimeoutError)
    return f" ({hint(error, host)})" if is_of_tls else ""


async def connect(
    edge: Edge,
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_ms: float,
    frame_bytes_max: int = 104_857_600,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
    counters: ClientRequestCounters | None = None,
    waits_for: Callable[[str], None] = lambda step: None,
) -> Connection:
    """Connect, negotiates versions and authenticates within `timeout_ms`. counters: of the client; None: not counted.
    waits_for: is called with each step that begins.

    Raises KafkaConnectionError, UnsupportedVersionError, and with credentials as `SaslExchange.authenticate`.
    """
    name = f"{host}:{port}"
    connection = Connection(edge, name, client_id, frame_bytes_max, counters)
    step = ""

    def begin(next_step: str) -> None:
        nonlocal step
        step = next_step
        waits_for(step)

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            begin(OPENING if tls is None else OPENING_TLS)
            try:
                await edge.create_connection(lambda: connection, host, port, tls)
            except UnicodeError as error:  # no resolver is asked: a label is empty or too long
                raise KafkaConnectionError(
                    f"cannot connect to {name}: {host!r} is not the name of a host ({error})"
                ) from error
            begin(ASKING_VERSIONS)
            await connection.agree_on_versions(timeout_ms)
            if credentials is not None:
                begin(LOGGING_IN)
                await connection.log_in(credentials, timeout_ms)
    except (TimeoutError, KafkaTimeoutError) as error:
        connection.close()
        if isinstance(error, OSError) and error.errno is not None:  # the kernel's own ETIMEDOUT
            raise KafkaConnectionError(f"cannot connect to {name}: {failure_of(error, host)}") from error
        raise KafkaConnectionError(f"cannot connect to {name} within {timeout_ms:.0f} ms: {step}") from None
    except OSError as error:
        connection.close()
        raise KafkaConnectionError(
            f"cannot connect to {name}: {failure_of(error, host)}{_tls_hint(error, host, tls)}"
        ) from error
    except KafkaConnectionError as error:
        connection.close()
        if tls is None and CLOSED_BY_BROKER in error.message:
            raise KafkaConnectionError(f"{error.message}: {TLS_THERE}") from error
        raise
    except BaseException:
        connection.close()
        raise
    return connection
