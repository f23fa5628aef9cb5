"""EDGE: listens on a socket, and serves the console there by uvicorn until it is interrupted, or its input ends."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn

GRACE_S = 3
"""Answers that take longer are cut."""


class _Server(uvicorn.Server):
    """Sets `ending` before it waits for its connections: streams of events do not end by themselves."""

    def __init__(self, settings: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(settings)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.set()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; at `::`, for both families. Raises OSError when the address cannot be used."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # counts for `::` alone
        made.bind(address)
        made.listen()
    except OSError:
        made.close()
        raise
    return made


async def serve(app: Any, listening: socket.socket, ending: asyncio.Event, *, until_input_ends: bool = False) -> None:
    """Serve the ASGI application `app` until SIGINT or SIGTERM. Then it sets `ending`.

    until_input_ends: also until standard input, a pipe, ends. A parent process that dies closes its end.
    """
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        ws="none",
        lifespan="on",
    )
    server = _Server(settings, ending)
    watching = asyncio.create_task(_end_with_input(server)) if until_input_ends else None
    try:
        await server.serve(sockets=[listening])
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])


async def _end_with_input(server: uvicorn.Server) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    try:
        while await reader.read(1024):
            pass
        server.should_exit = True
    finally:
        transport.close()
