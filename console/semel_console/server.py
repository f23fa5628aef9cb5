"""EDGE: listens on a socket, and serves the console there by uvicorn until it is interrupted."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

GRACE_S = 1
"""Streams of events never end by themselves: they are cut after this time."""


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError when the address cannot be used."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()
    except OSError:
        made.close()
        raise
    return made


async def serve(app: Any, listening: socket.socket) -> None:
    """Serves the ASGI application `app` until SIGINT or SIGTERM."""
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
    await uvicorn.Server(settings).serve(sockets=[listening])
