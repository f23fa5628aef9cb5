"""EDGE: HTTP for metrics and health, on the event loop of the broker: `/metrics`, `/health/live`, `/health/ready`."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from http import HTTPStatus
from typing import Final

import h11

from semel_broker.config.listeners import Endpoint
from semel_broker.metrics.exporter import Exporter
from semel_broker.metrics.health import not_ready
from semel_broker.metrics.page import CONTENT_TYPE
from semel_broker.metrics.process import Process
from semel_broker.metrics.watchdog import Watchdog
from semel_broker.net.binding import bind
from semel_broker.net.server import ListenError
from semel_broker.node import Node
from semel_broker.world import Logger

TEXT: Final = "text/plain; charset=utf-8"
IDLE_S: Final = 60.0
"""A connection without a request is closed."""
CONNECTIONS_MAX: Final = 64
READ_BYTES: Final = 16 << 10
PATHS: Final = "/metrics, /health/live and /health/ready"


class MetricsServer:
    """`open` it before the broker starts, `serve(node)` when it has started, `close` it before the broker stops."""

    def __init__(self, address: Endpoint, log: Logger) -> None:
        self._address, self._log = address, log
        self._servers: list[asyncio.Server] = []
        self._node: Node | None = None
        self._exporter: Exporter | None = None
        self._process: Process | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._page: asyncio.Task[bytes] | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen: the broker is alive, and not ready. Raises ListenError."""
        try:
            self._servers, self.port = await bind(self._listen, self._address.host, self._address.port)
        except OSError as error:
            raise ListenError(error, self._address) from error

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accept, host, port)

    def serve(self, node: Node) -> None:
        """The broker has started: serve its metrics."""
        watchdog = Watchdog(asyncio.get_running_loop(), self._log, node.broker.counters.work)
        self._process = Process(watchdog)
        self._process.start()
        self._node, self._exporter = node, Exporter(node, self._process)

    async def close(self) -> None:
        """Listen no more, and close all connections."""
        if self._process is not None:
            self._process.stop()
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- connections ---

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._tasks[task] = None
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, h11.RemoteProtocolError):
            pass  # the peer is gone, is silent, or does not speak HTTP
        finally:
            del self._tasks[task]
            writer.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            async with asyncio.timeout(IDLE_S):
                request = await _next_request(connection, reader)
                if request is None:
                    return
                status, content_type, body = await self._answer(request)
                headers = [
                    ("content-type", content_type),
                    ("content-length", str(len(body))),
                    ("cache-control", "no-store"),
                    ("x-content-type-options", "nosniff"),
                ]
                head = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
                writer.write(connection.send(head) or b"")
                if request.method != b"HEAD":
                    writer.write(connection.send(h11.Data(data=body)) or b"")
                writer.write(connection.send(h11.EndOfMessage()) or b"")
                await writer.drain()
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _answer(self, request: h11.Request) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        if request.method not in (b"GET", b"HEAD"):
            return 405, TEXT, b"use GET\n"
        path = request.target.partition(b"?")[0]
        if path == b"/health/live":
            return 200, TEXT, b"alive\n"
        if path == b"/health/ready":
            reason = not_ready(self._node)
            return (503, TEXT, f"not ready: {reason}\n".encode()) if reason else (200, TEXT, b"ready\n")
        if path != b"/metrics":
            return 404, TEXT, f"there is {PATHS}\n".encode()
        if self._exporter is None:
            return 503, TEXT, f"{not_ready(self._node)}\n".encode()
        return 200, CONTENT_TYPE, await self._text(self._exporter)

    async def _text(self, exporter: Exporter) -> bytes:
        """A page; scrapes at the same time share one."""
        if self._page is None or self._page.done():
            self._page = asyncio.create_task(exporter.text())
        page = self._page
        await asyncio.wait((page,))
        return page.result()


async def _next_request(connection: h11.Connection, reader: StreamReader) -> h11.Request | None:
    """The next request, without its body; None: the peer has closed. Raises h11.RemoteProtocolError."""
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None
