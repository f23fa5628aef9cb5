"""The way from a request frame to its answer: header, version check, decoding, handler, encoding, and errors."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, cast

import msgspec
from semel_protocol.api import APIS, Api
from semel_protocol.api_key import ApiKey
from semel_protocol.declaration import Versions
from semel_protocol.errors import ErrorCode, KafkaError, ProtocolError
from semel_protocol.foreign import not_served
from semel_protocol.headers import encode_response_frame, encode_response_frame_in_steps, read_request_header
from semel_protocol.schema import Message

from semel_broker.answers import CloseConnectionError, RequestOrder
from semel_broker.config.listeners import PLAINTEXT
from semel_broker.context import Broker, Handler, RequestContext
from semel_broker.counters.connections import UNKNOWN, Software
from semel_broker.counters.requests import ApiCounters, RequestCounters
from semel_broker.handlers import HANDLERS, LONG_ANSWERS, k18_api_versions
from semel_broker.handlers.api_versions import offered
from semel_broker.net.throttling import Begun, Chunks, Throttling
from semel_broker.scheduling.answer_memory import AnswerHolding
from semel_broker.scheduling.parting import Parting
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.security.sasl.session import FAILED, SaslRefusal, SaslSession

PRODUCE = ApiKey.PRODUCE.value
API_VERSIONS = ApiKey.API_VERSIONS.value
LONG_FRAME_BYTES = 16 << 10
"""A request of at least this size is decoded, and its answer encoded, in slices."""


class Peer(msgspec.Struct, kw_only=True):
    """The peer of a connection. For `answers`, `sasl` and `parting` see `RequestContext`."""

    host: str
    port: int
    listener: str = PLAINTEXT
    """The name of the listener that accepted the connection."""
    client_id: str = ""
    requests: int = 0
    """The number of started requests."""
    waiting: int = 0
    """The number of received requests that are not started yet."""
    number: int = 0
    """The number of the connection, from 1."""
    answers: AnswerHolding | None = None
    principal: Principal = ANONYMOUS
    """The principal of a connection without SASL."""
    sasl: SaslSession | None = None
    muted_until: float = 0.0
    """No request starts before this time on the clock of the event loop. 0.0: the connection is not muted."""
    software: Software = UNKNOWN
    """The name and version of the client software, as ApiVersions reports them."""
    parting: Parting = msgspec.field(default_factory=Parting)

    @property
    def authenticated(self) -> Principal:
        """The present principal."""
        return self.principal if self.sasl is None else self.sasl.principal


class Dispatcher:
    """Starts requests, for all connections of a listener. `versions`: by API key; None: those offered to clients.

    `quotas`: of the clients; None: there are none, as for other brokers. `counters`: of these requests.
    """

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler] = HANDLERS,
        versions: Mapping[int, Versions] | None = None,
        quotas: ClientQuotas | None = None,
        counters: RequestCounters | None = None,
    ) -> None:
        self._quotas = quotas
        self._broker = broker
        self.counters = broker.counters.requests if counters is None else counters
        self.connections = broker.counters.connections
        self.work = broker.counters.work
        self._handlers = handlers
        self._offered = (
            offered(broker.config, has_telemetry=broker.telemetry is not None) if versions is None else versions
        )

    def start(self, frame: bytearray, peer: Peer, order: RequestOrder, counters: ApiCounters) -> Begun:
        """Start the request in `frame`; return its answer, or a coroutine that makes it. `counters`: of its API.

        Raises CloseConnectionError (also the coroutine) if the connection must be closed without an answer.
        """
        sasl = peer.sasl
        if sasl is not None and sasl.expects_raw_token:
            return _raw_token(frame, sasl)
        try:
            header = read_request_header(frame)
        except ProtocolError as error:
            raise CloseConnectionError("malformed_header", error=str(error)) from None
        peer.client_id = header.client_id or ""
        peer.requests += 1
        key, version = header.api_key, header.api_version
        if sasl is not None:
            sasl.check(key, version, peer.client_id)
        handler = self._handlers.get(key) if key in self._offered else None
        if handler is None:
            raise CloseConnectionError(
                "api_not_served", api_key=key, api_version=version, **dict[str, Any](not_served(key))
            )
        api = APIS[key]
        if not api.low <= version <= self._offered[key][1]:
            if key == API_VERSIONS and version > api.low:
                answer = k18_api_versions.unsupported_version(self._broker.config)
                return encode_response_frame(api, 0, header.correlation_id, answer)
            raise CloseConnectionError("version_not_served", api=api.name, api_version=version)
        quotas, throttling = self._quotas, None
        if quotas is not None and quotas.is_active:
            throttling = Throttling(quotas, peer, len(frame), get_running_loop().time, self._broker.world.monotonic)
        call = Call(api, version, header.correlation_id, counters, throttling)
        work = self.work
        work.api, work.client_id, work.size = api, peer.client_id, len(frame)
        try:
            body_at = header.body_at(api, frame)
        except ProtocolError as error:
            raise call.malformed(error) from None
        answered = self._answer(call, handler, frame, body_at, self._context(version, peer, order), peer)
        return answered if throttling is None else throttling.metered(answered)

    def _context(self, version: int, peer: Peer, order: RequestOrder) -> RequestContext:
        return RequestContext(
            self._broker,
            version,
            peer.client_id,
            peer.host,
            peer.listener,
            peer.requests,
            peer.number,
            peer.waiting,
            peer.answers,
            peer.authenticated,
            peer.sasl,
            peer.software,
            peer.port,
            peer.parting,
            order,
        )

    async def _answer(
        self, call: Call, handler: Handler, frame: bytearray, body_at: int, ctx: RequestContext, peer: Peer
    ) -> Chunks:
        """Decode the request, call its handler, and encode the response. Long requests and answers wait in between."""
        key = call.api.key
        is_long = key in LONG_ANSWERS
        try:
            try:
                if len(frame) < LONG_FRAME_BYTES:
                    request = call.decode(frame, body_at)
                else:
                    slices, steps = ctx.slices(), self._decoding(call, frame, body_at)
                    decoded = slices.advance(steps)
                    # A large Produce nearly always has few elements, and then a short answer.
                    is_long |= decoded is None or key != PRODUCE
                    request = await slices.finish(steps) if decoded is None else decoded
                del frame  # else its bytes stay in memory until the answer
                if key == API_VERSIONS:
                    self._note_software(request, peer)
                if self.work.api is not None:  # None: the request was decoded in slices
                    self.work.request = request
                if call.throttling is not None:
                    call.throttling.begin(request)
                response = await handler(request, ctx)
            except KafkaError as error:
                response = call.refusal(error)
            if response is None:
                return []
            response = call.finished(response)
            if is_long:
                return await ctx.slices().finish(call.encoding(response))
            return call.encode(response)
        except CloseConnectionError as end:
            raise call.last(end) from None
        except Exception as error:
            raise self._failed(call, error) from error

    def _note_software(self, request: Message, peer: Peer) -> None:
        name: str = getattr(request, "client_software_name", "")
        if name:
            version: str = getattr(request, "client_software_version", "")
            peer.software = self.connections.named(peer.listener, peer.software, name, version)

    def _decoding(self, call: Call, frame: bytearray, body_at: int) -> Generator[int, None, Message]:
        """Decode in steps. Raises CloseConnectionError for a malformed request, and INVALID_REQUEST above
        `request_elements_max` elements.
        """
        most = self._broker.config.limits.request_elements_max
        count = 0
        steps = call.api.request_codec(call.version).decode_in_steps(frame, body_at)
        while True:
            try:
                more = next(steps)
            except StopIteration as done:
                return cast("Message", done.value)
            except ProtocolError as error:
                raise call.malformed(error) from None
            count += more
            if count > most:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"the {call.api.name} request has more than {most} elements; send it in several parts",
                )
            yield more

    def _failed(self, call: Call, error: Exception) -> CloseConnectionError:
        """An unexpected exception, a bug of the broker: log its traceback and close this connection."""
        self._broker.log.error("request_failed", api=call.api.name, api_version=call.version, exc_info=error)
        return CloseConnectionError("internal_error", api=call.api.name, api_version=call.version)


async def _raw_token(frame: bytearray, sasl: SaslSession) -> Chunks:
    """The answer to a token without a header, after SaslHandshake v0: a size and a challenge."""
    try:
        step = await sasl.authenticate(bytes(frame))
    except SaslRefusal:
        raise CloseConnectionError(FAILED) from None
    return [len(step.challenge).to_bytes(4, "big"), step.challenge]


class Call(msgspec.Struct, frozen=True, gc=False):
    """API, version and correlation id of a request: what its answer is encoded with.

    `counters`: of its API. `throttling`: the quotas of its client; None: no client has any.
    """

    api: Api
    version: int
    correlation_id: int
    counters: ApiCounters
    throttling: Throttling | None = None

    def decode(self, frame: bytearray, body_at: int) -> Message:
        """The request, whose body begins at `body_at`. Raises CloseConnectionError for a malformed one."""
        try:
            request: Message = self.api.decode_request(frame, self.version, body_at)
        except ProtocolError as error:
            raise self.malformed(error) from None
        return request

    def finished(self, response: Message) -> Message:
        """Count the errors of a response; return it with its throttle time."""
        self.counters.count_errors(response)
        return response if self.throttling is None else self.throttling.answer(response)

    def encode(self, response: Message) -> Chunks:
        return encode_response_frame(self.api, self.version, self.correlation_id, response)

    def encoding(self, response: Message) -> Generator[int, None, Chunks]:
        """`encode` in steps, for a response that may be long."""
        return encode_response_frame_in_steps(self.api, self.version, self.correlation_id, response)

    def malformed(self, error: ProtocolError) -> CloseConnectionError:
        """The error that closes the connection of a request that cannot be decoded."""
        return CloseConnectionError("malformed_request", api=self.api.name, api_version=self.version, error=str(error))

    def last(self, end: CloseConnectionError) -> CloseConnectionError:
        """The same, with its answer encoded."""
        end.chunks = [] if end.answer is None else self.encode(self.finished(end.answer))
        return end

    def refusal(self, error: KafkaError) -> Message:
        """The response that carries `error`. Raises CloseConnectionError if this version has no field for it."""
        if not _has_error_code(self.api, self.version):
            raise CloseConnectionError("refused", api=self.api.name, code=error.code.name, error=error.message)
        fields: dict[str, object] = {"error_code": int(error.code)}
        if "error_message" in self.api.response.__struct_fields__:
            fields["error_message"] = error.message or None
        return self.api.response(**fields)


@cache
def _has_error_code(api: Api, version: int) -> bool:
    """Whether this response has a top-level error code in this version: setting it must change the bytes."""
    if "error_code" not in api.response.__struct_fields__:
        return False
    refused = api.response(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    return api.encode_response(refused, version) != api.encode_response(api.response(), version)
