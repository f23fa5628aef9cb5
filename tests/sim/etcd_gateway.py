"""The JSON gateway of the simulated etcd: HTTP/1.1 over the world's connections, as far as brokers use it.

A write takes effect some milliseconds after its arrival, when the members of a real etcd would have agreed on it. If
the connection is lost before the answer, the sender does not know the outcome.
"""

from __future__ import annotations

from asyncio import BaseTransport, Protocol, Transport, get_running_loop
from collections.abc import Callable
from typing import Any

import msgspec
from semel_broker.cluster.etcd import messages

from sim.etcd import Etcd, EtcdError

HEAD_END = b"\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BAD = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"

_decode: dict[str, Callable[[bytes], Any]] = {
    path: msgspec.json.Decoder(kind, strict=False).decode
    for path, kind in {
        "/v3/kv/range": messages.RangeRequest,
        "/v3/kv/txn": messages.TxnRequest,
        "/v3/watch": messages.WatchRequest,
        "/v3/lease/grant": messages.LeaseGrantRequest,
        "/v3/lease/keepalive": messages.LeaseRequest,
        "/v3/lease/revoke": messages.LeaseRequest,
    }.items()
}


class SimEtcdGateway:
    """The running process of an etcd. `commit_s`: gives the time until the next write takes effect."""

    def __init__(self, etcd: Etcd, monotonic: Callable[[], float], commit_s: Callable[[], float]) -> None:
        self.etcd, self.monotonic, self.commit_s = etcd, monotonic, commit_s
        self._watchers: dict[Watcher, None] = {}
        self._wakes = False

    def connection(self) -> GatewayConnection:
        """Make the protocol of a new connection, for `create_server`."""
        return GatewayConnection(self)

    def expire(self) -> None:
        """End the expired leases."""
        for number in self.etcd.expired(self.monotonic()):
            self.etcd.revoke(number)
        self.changed()

    def changed(self) -> None:
        """Send new events to the watches after a short delay."""
        if self._watchers and not self._wakes:
            self._wakes = True
            get_running_loop().call_later(self.commit_s() / 4, self._wake)

    def _wake(self) -> None:
        self._wakes = False
        for watcher in list(self._watchers):
            watcher.tell()

    def answer(self, path: str, request: Any, connection: GatewayConnection) -> None:
        """Carry out a request, at once or later, and answer it."""
        later = get_running_loop().call_later
        etcd = self.etcd
        match path:
            case "/v3/kv/range":
                connection.says(lambda: etcd.range(request))
            case "/v3/kv/txn":
                later(self.commit_s(), connection.says, lambda: self._written(etcd.txn(request)))
            case "/v3/lease/grant":
                later(self.commit_s(), connection.says, lambda: etcd.grant(request.ttl_s, self.monotonic()))
            case "/v3/lease/revoke":
                later(self.commit_s(), connection.says, lambda: self._revoked(request.lease))
            case "/v3/lease/keepalive":
                connection.says(
                    lambda: messages.KeepAliveLine(etcd.keep_alive(request.lease, self.monotonic())), is_stream=True
                )
            case _:
                watcher = connection.watcher = Watcher(etcd, request.create_request, connection)
                self._watchers[watcher] = None
                watcher.tell()

    def _written(self, answer: messages.TxnResponse) -> messages.TxnResponse:
        self.changed()
        return answer

    def _revoked(self, lease: int) -> messages.Nothing:
        self.etcd.revoke(lease)
        self.changed()
        return messages.Nothing()

    def gone(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)


class GatewayConnection(Protocol):
    """One connection of a client, with one request at a time."""

    def __init__(self, gateway: SimEtcdGateway) -> None:
        self._gateway = gateway
        self._received = bytearray()
        self._transport: Transport | None = None
        self.watcher: Watcher | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.watcher is not None:
            self._gateway.gone(self.watcher)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(HEAD_END)
        while end >= 0:
            head = self._received[:end].decode("ascii")
            size = next(int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line)
            start = end + len(HEAD_END)
            if len(self._received) < start + size:
                return
            body = bytes(self._received[start : start + size])
            del self._received[: start + size]
            path = head.split(" ")[1]
            self._gateway.answer(path, _decode[path](body), self)
            end = self._received.find(HEAD_END)

    def says(self, answer: Callable[[], Any], *, is_stream: bool = False) -> None:
        """Carry out a request and send its answer. The request is carried out even if the connection is gone."""
        head = OK
        try:
            body = msgspec.json.encode(answer())
        except EtcdError as error:
            head = BAD
            body = msgspec.json.encode({"error": error.message, "code": error.code, "message": error.message})
        if is_stream:
            self.begin_lines()
            self.line(body)
            self._write(b"0\r\n\r\n")
        else:
            self._write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def begin_lines(self) -> None:
        """Send the head of an answer that is a stream of lines."""
        self._write(OK + b"Transfer-Encoding: chunked\r\n\r\n")

    def line(self, data: bytes) -> None:
        """Send one line of the stream."""
        self._write(b"%x\r\n%b\n\r\n" % (len(data) + 1, data))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


class Watcher:
    """One stream of changes."""

    def __init__(self, etcd: Etcd, wanted: messages.WatchCreateRequest, connection: GatewayConnection) -> None:
        self._etcd, self._wanted, self._connection = etcd, wanted, connection
        self._next = wanted.start_revision
        self._is_over = False
        connection.begin_lines()
        self._say(messages.WatchResponse(etcd.header, created=True))

    def tell(self) -> None:
        """Send new events, or cancel the watch if events that it needs are compacted."""
        if self._is_over:
            return
        try:
            events, self._next = self._etcd.changes(self._wanted.key, self._wanted.range_end, self._next)
        except EtcdError:
            self._is_over = True
            etcd = self._etcd
            self._say(messages.WatchResponse(etcd.header, canceled=True, compact_revision=etcd.compacted + 1))
            return
        if events:
            self._say(messages.WatchResponse(self._etcd.header, events=events))

    def _say(self, told: messages.WatchResponse) -> None:
        self._connection.line(msgspec.json.encode(messages.WatchLine(told)))
