"""The JSON gateway of etcd: calls and streams over HTTP/1.1 connections, and the choice of the endpoint.

Each etcd from 3.4 on serves the gateway on its client port (`/v3/...`) unless it is switched off. Idle connections are
kept and used again. All requests go to one endpoint until it fails; then they go to the next one. Why not gRPC:
docs/decisions/0011-etcd-through-its-json-gateway.md.
"""

from __future__ import annotations

from asyncio import current_task, get_running_loop, sleep, timeout
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec
from semel_protocol.backoff import Backoff
from semel_protocol.errors import PortableError

from semel_broker.cluster.etcd.connection import CONNECTION_ERRORS, EtcdConnection, EtcdEndpoint
from semel_broker.cluster.etcd.login import EtcdLogin
from semel_broker.cluster.etcd.messages import Failure
from semel_broker.cluster.etcd.tls import EtcdTls

CONNECT_TIMEOUT_MS: Final = 2_000
IDLE_CONNECTIONS_MAX: Final = 8
PAUSE_MS_MIN: Final = 50
PAUSE_MS_MAX: Final = 1_000
PAUSE_JITTER: Final = (0.5, 1.0)
GATEWAY_REFUSED: Final = "transport: authentication handshake failed"
"""In the message of etcd's JSON gateway when etcd refuses the gateway's own certificate."""

_failure = msgspec.json.Decoder(Failure, strict=False)


class NotSentError(Exception):
    """No connection could be made. etcd has not seen the request."""


class UnansweredError(Exception):
    """The request was sent, or part of it, and no complete response was received."""


class EtcdRefusedError(PortableError):
    """etcd answered with an error. `code` is gRPC's status code, the message is etcd's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Gateway:
    """The endpoints of one etcd cluster, and the idle connections to the current endpoint."""

    def __init__(self, endpoints: Sequence[str], tls: EtcdTls | None = None, login: EtcdLogin | None = None) -> None:
        if not endpoints:
            raise ValueError("no etcd endpoint was given; name at least one, such as http://localhost:2379")
        self._endpoints = [EtcdEndpoint.parse(url) for url in endpoints]
        if tls is None and any(endpoint.is_tls for endpoint in self._endpoints):
            raise ValueError("an https endpoint needs `tls`")
        self._tls = tls
        self._login = login
        self._stream_token = ""  # of the last stream: the next one gets another
        self._at = 0
        self._idle: list[EtcdConnection] = []
        self._open: dict[EtcdConnection, None] = {}

    @property
    def endpoint(self) -> EtcdEndpoint:
        """The current endpoint: new requests go to it."""
        return self._endpoints[self._at]

    def leave(self, failed: EtcdEndpoint) -> None:
        """Make the next endpoint the current one, unless another caller has left `failed` already."""
        if self.endpoint == failed:
            self._at = (self._at + 1) % len(self._endpoints)
            for connection in self._idle:
                self.discard(connection)
            self._idle = []

    def backoff(self, rng: Random) -> Backoff:
        """The pauses of one caller between its attempts. There is no pause until each endpoint has failed once."""
        return Backoff(rng, PAUSE_MS_MIN, PAUSE_MS_MAX, jitter=PAUSE_JITTER, alternatives=len(self._endpoints))

    async def call(self, path: str, body: bytes, timeout_ms: float) -> bytes:
        """The body of the response. Raises NotSentError, UnansweredError, EtcdRefusedError."""
        if self._login is None:
            return await self._call(path, body, timeout_ms)
        token = await self._token(self._login, timeout_ms)
        try:
            return await self._call(path, body, timeout_ms, token)
        except EtcdRefusedError as error:
            if not self._login.is_about_token(error.code, str(error)):
                raise
        return await self._call(path, body, timeout_ms, await self._token(self._login, timeout_ms, unlike=token))

    async def _token(self, login: EtcdLogin, timeout_ms: float, *, unlike: str = "") -> str:
        """The token of the user. Raises NotSentError: the request that needs it has not been sent. EtcdRefusedError."""

        async def call(path: str, body: bytes) -> bytes:
            return await self._call(path, body, timeout_ms)

        try:
            return await login.token(call, unlike=unlike)
        except UnansweredError as error:
            raise NotSentError(str(error)) from error
        except msgspec.DecodeError as error:
            raise NotSentError(f"etcd answered the login with something else: {error}") from error
        except EtcdRefusedError as error:
            raise EtcdRefusedError(
                error.code,
                f"{error}; etcd does not accept the user {login.user!r}: correct etcd.user and etcd.password, or "
                "create it (etcdctl user add, etcdctl auth enable)",
            ) from None

    async def _call(self, path: str, body: bytes, timeout_ms: float, token: str = "") -> bytes:
        if current_task() is None:
            await sleep(0)  # `timeout` needs a task; a request that was begun eagerly gets one at its first wait
        connection = self._take_idle() or await self._connect(timeout_ms)
        is_done = False
        try:
            async with timeout(timeout_ms / 1000):
                connection.send(path, body, token)
                status = await connection.status()
                answer = await connection.body()
            is_done = True
        except CONNECTION_ERRORS as error:
            raise UnansweredError(self._explain(connection.endpoint, error, is_connected=True)) from error
        finally:
            is_wanted = connection.endpoint == self.endpoint and len(self._idle) < IDLE_CONNECTIONS_MAX
            if is_done and is_wanted and connection.is_usable:
                self._idle.append(connection)
            else:
                self.discard(connection)
        if status != 200:
            raise _refusal(status, answer)
        return answer

    async def stream(self, path: str, body: bytes, timeout_ms: float) -> EtcdConnection:
        """Send a request on a new connection; its `line` returns the lines of the response. The caller discards it.

        Raises NotSentError, UnansweredError, EtcdRefusedError.
        """
        token = ""
        if (
            self._login is not None
        ):  # a fresh token, because a stream cannot be repeated unnoticed when its token is old
            self._stream_token = token = await self._token(self._login, timeout_ms, unlike=self._stream_token)
        connection = await self._connect(timeout_ms)
        is_streaming = False
        try:
            async with timeout(timeout_ms / 1000):
                connection.send(path, body, token)
                status = await connection.status()
                if status != 200:
                    raise _refusal(status, await connection.body())
            is_streaming = True
        except CONNECTION_ERRORS as error:
            raise UnansweredError(self._explain(connection.endpoint, error, is_connected=True)) from error
        finally:
            if not is_streaming:
                self.discard(connection)
        return connection

    def discard(self, connection: EtcdConnection) -> None:
        """Close a connection, with its pending request or stream."""
        self._open.pop(connection, None)
        connection.close()

    def close(self) -> None:
        """Close all connections. Requests that are under way raise UnansweredError."""
        for connection in list(self._open):
            self.discard(connection)
        self._idle = []

    def _take_idle(self) -> EtcdConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            self.discard(connection)
        return None

    async def _connect(self, timeout_ms: float) -> EtcdConnection:
        endpoint = self.endpoint
        try:
            async with timeout(min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000):
                connection = await self._open_connection(endpoint)
        except OSError as error:
            raise NotSentError(self._explain(endpoint, error, is_connected=False)) from error
        self._open[connection] = None
        return connection

    async def _open_connection(self, endpoint: EtcdEndpoint) -> EtcdConnection:
        loop, tls = get_running_loop(), self._tls
        if not endpoint.is_tls or tls is None:
            _, connection = await loop.create_connection(lambda: EtcdConnection(endpoint), endpoint.host, endpoint.port)
        else:
            _, connection = await loop.create_connection(
                lambda: EtcdConnection(endpoint),
                endpoint.host,
                endpoint.port,
                ssl=tls.context,
                server_hostname=tls.server_name or endpoint.host,
            )
        return connection

    def _explain(self, endpoint: EtcdEndpoint, error: Exception, *, is_connected: bool) -> str:
        """The endpoint and its error; for errors of TLS also the remedy."""
        why = str(error) or type(error).__name__
        if self._tls is not None and endpoint.is_tls:
            why = self._tls.explain(error, endpoint.host, is_connected=is_connected) or why
        return f"{endpoint}: {why}"


def _refusal(status: int, answer: bytes) -> EtcdRefusedError | UnansweredError:
    """The error of a response whose status is not 200."""
    try:
        failure = _failure.decode(answer)
    except msgspec.DecodeError:
        return UnansweredError(f"HTTP status {status} without an error of etcd in its body: {answer[:200]!r}")
    message = failure.message
    if GATEWAY_REFUSED in message:
        message += (
            "; with --client-cert-auth etcd's JSON gateway connects to etcd with the certificate of --cert-file, which "
            "must be valid for clients too (extended key usage clientAuth): create such a certificate"
        )
    return EtcdRefusedError(failure.code or failure.grpc_code, message)
