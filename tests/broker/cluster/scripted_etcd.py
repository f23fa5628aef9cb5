"""A server in place of etcd. It gives scripted answers, one for each request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def close(writer: asyncio.StreamWriter) -> None:
    """Read the request and abort the connection."""
    writer.transport.abort()


async def silence(writer: asyncio.StreamWriter) -> None:
    """Read the request and never answer."""


def says(data: bytes) -> Answer:
    """Answer with these bytes and nothing more."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def body(text: str, status: str = "200 OK") -> Answer:
    """A whole HTTP answer."""
    data = text.encode()
    return says(f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)


def body_and_close(text: str) -> Answer:
    """A whole answer, after which the connection is closed."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        await body(text)(writer)
        writer.close()

    return answer


def chunks(data: bytes, size: int) -> Answer:
    """The beginning of a streamed answer, in chunks of `size` bytes."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed)


class ScriptedEtcd:
    """A server that gives the n-th answer to the n-th request, and the last answer to all later ones.

    `tls`: for a TLS server.
    """

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._answers = answers
        self._tls = tls
        self.requests: list[str] = []
        self.heads: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> ScriptedEtcd:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                request = head.split(b" ")[1] + b" " + await reader.readexactly(length)
                self.requests.append(request.decode())
                self.heads.append(head.decode())
                await self._answers[min(len(self.requests), len(self._answers)) - 1](writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
