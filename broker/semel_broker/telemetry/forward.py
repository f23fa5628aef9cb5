"""Sends the metrics that clients push to an OpenTelemetry collector, as they are: OTLP over HTTP, one POST for a push.

The queue is bounded. A payload that finds it full is dropped and counted. The log has the first failure, and the
success that ends it. Nothing is tried twice: the next push of the client has newer values.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Final
from urllib.parse import urlsplit

import h11
import msgspec

from semel_broker.config.settings import ConfigError
from semel_broker.world import Logger

QUEUE_BYTES_MAX: Final = 16 << 20
REQUEST_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 << 10
READ_BYTES: Final = 16 << 10
PORTS: Final = {"http": 80, "https": 443}


class Collector(msgspec.Struct, frozen=True):
    """The address of a collector."""

    host: str
    port: int
    path: str
    is_tls: bool

    @classmethod
    def parse(cls, url: str) -> Collector:
        """From `http://host:4318/v1/metrics`. Raises ConfigError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in PORTS or parts.username is not None:
            raise ConfigError(
                f"telemetry.otlp.endpoint = {url!r}: must be an http or https URL, such as "
                "http://127.0.0.1:4318/v1/metrics"
            )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(host, port or PORTS[parts.scheme], path, parts.scheme == "https")


class Forwarder:
    """One per broker; `close` it at the end. `sent`, `dropped`: payloads."""

    def __init__(self, collector: Collector, log: Logger) -> None:
        self._collector, self._log = collector, log
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        self.sent = self.dropped = 0

    def forward(self, payload: bytes) -> None:
        """Send a payload later."""
        if self._queued_bytes + len(payload) > QUEUE_BYTES_MAX:
            self.dropped += 1
            return
        self._queue.append(payload)
        self._queued_bytes += len(payload)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metrics of clients")

    async def close(self) -> None:
        """Drop what waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while self._queue:
            payload = self._queue.popleft()
            self._queued_bytes -= len(payload)
            try:
                async with asyncio.timeout(REQUEST_S):
                    status = await self._post(payload)
                if not 200 <= status < 300:
                    raise OSError(f"the collector answered with status {status}")
            except (OSError, TimeoutError, h11.ProtocolError) as error:
                self.dropped += 1
                self._failed(str(error) or "no answer in time")
                continue
            self.sent += 1
            if self._has_failed:
                self._has_failed = False
                self._log.info("client_metrics_forwarded_again")

    def _failed(self, error: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._log.warning(
                "client_metrics_not_forwarded",
                host=self._collector.host,
                port=self._collector.port,
                error=error,
                do="check telemetry.otlp.endpoint and the collector",
            )

    async def _post(self, payload: bytes) -> int:
        """The status of the answer. Raises OSError, h11.ProtocolError."""
        to = self._collector
        tls = ssl.create_default_context() if to.is_tls else None
        reader, writer = await asyncio.open_connection(to.host, to.port, ssl=tls)
        http = h11.Connection(h11.CLIENT)
        headers = [
            ("Host", f"{to.host}:{to.port}"),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Length", str(len(payload))),
            ("Connection", "close"),
        ]
        try:
            writer.write(http.send(h11.Request(method="POST", target=to.path, headers=headers)) or b"")
            writer.write(http.send(h11.Data(payload)) or b"")
            writer.write(http.send(h11.EndOfMessage()) or b"")
            received = 0
            while received < ANSWER_BYTES_MAX:
                event = http.next_event()
                if isinstance(event, h11.Response):
                    return event.status_code
                if event is h11.NEED_DATA:
                    data = await reader.read(READ_BYTES)
                    received += len(data)
                    http.receive_data(data)
            raise OSError("the collector's answer has no head")
        finally:
            writer.close()
