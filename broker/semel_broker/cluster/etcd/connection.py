"""One HTTP/1.1 connection to one etcd: a request, then its answer, whole or as a stream of lines."""

from __future__ import annotations

from asyncio import IncompleteReadError, LimitOverrunError, StreamReader, StreamWriter
from typing import Final
from urllib.parse import urlsplit

import msgspec

PART_BYTES_MAX: Final = 64 << 10
BODY_BYTES_MAX: Final = 256 << 20
"""Of one answer, or one line of a stream: more than any listing of a sensible cluster."""

CONNECTION_ERRORS: Final = (OSError, IncompleteReadError, LimitOverrunError, ValueError, LookupError, TimeoutError)
"""What a connection raises: errors of the network, and answers that are not HTTP."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where one etcd listens for clients."""

    host: str
    port: int
    is_tls: bool

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """From `http://host:2379` or `https://host:2379`. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"{url!r} is not an etcd endpoint; write it as http://host:2379 or https://host:2379")
        return cls(parts.hostname, parts.port or 2379, parts.scheme == "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Connection:
    """One HTTP/1.1 connection, with at most one request on it at a time."""

    def __init__(self, endpoint: Endpoint, reader: StreamReader, writer: StreamWriter) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._chunk_left: int | None = None  # of a chunked body: bytes to come of this chunk, None outside of one
        self._line = bytearray()

    @property
    def is_usable(self) -> bool:
        """Whether nothing says that the other side has closed it."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def send(self, path: str, body: bytes) -> None:
        """Write a request. `hasleader` lets a member that is cut off from its leader end streams instead of idling."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.endpoint}\r\nContent-Type: application/json\r\n"
            f"Grpc-Metadata-Hasleader: true\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode("ascii") + body)

    async def head(self) -> tuple[int, int | None]:
        """Read status line and headers: the status, and the body's length (None: chunked)."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status, *_ = lines[0].split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"this is not HTTP/1.1: {lines[0]!r}")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return int(status), None
        length = int(headers["content-length"])
        if not 0 <= length <= BODY_BYTES_MAX:
            raise ValueError(f"an answer of {length} bytes; at most {BODY_BYTES_MAX} are taken")
        return int(status), length

    async def body(self, length: int | None) -> bytes:
        """The whole body."""
        if length is not None:
            return await self._reader.readexactly(length)
        whole = bytearray()
        while part := await self._part():
            whole += part
            if len(whole) > BODY_BYTES_MAX:
                raise ValueError(f"an answer of more than {BODY_BYTES_MAX} bytes")
        return bytes(whole)

    async def line(self) -> bytes:
        """The next line of a chunked body; empty at its end. Lines and chunks need not agree."""
        start = 0
        while (end := self._line.find(b"\n", start)) < 0:
            start = len(self._line)
            part = await self._part()
            if not part:
                return b""
            self._line += part
            if len(self._line) > BODY_BYTES_MAX:
                raise ValueError(f"a line of more than {BODY_BYTES_MAX} bytes")
        line = bytes(self._line[:end])
        del self._line[: end + 1]
        return line if line else await self.line()  # a blank line between two messages

    async def _part(self) -> bytes:
        """Some bytes of the chunked body; empty at its end."""
        if self._chunk_left is None:
            self._chunk_left = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if self._chunk_left == 0:
                while await self._reader.readuntil(b"\r\n") != b"\r\n":
                    continue  # trailers
                self._chunk_left = None
                return b""
        part = await self._reader.read(min(self._chunk_left, PART_BYTES_MAX))
        if not part:
            raise ConnectionResetError("the connection was closed within an answer")
        self._chunk_left -= len(part)
        if self._chunk_left == 0:
            await self._reader.readexactly(2)
            self._chunk_left = None
        return part

    def close(self) -> None:
        """Let go of it at once: nothing that is under way on it matters any more."""
        self._writer.transport.abort()
