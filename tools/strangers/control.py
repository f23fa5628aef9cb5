"""EDGE: lets a suite kill, stop and start brokers: a line of text over TCP, with the response "ok" or "error: ...".

python -m tools.strangers.control kill|stop|start|restart INDEX with STRANGERS_CONTROL set; restart: a clean stop, start
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from tools.cluster.compose import ComposeError
from tools.cluster.service import ServiceError
from tools.strangers.brokers import SuiteBrokers
from tools.strangers.process import ServerError

ANSWER_TIMEOUT_S = 300
LINE_BYTES_MAX = 4096


class ControlError(RuntimeError):
    """The requested action on a broker failed."""


class Control:
    """Listens on loopback while a suite runs."""

    def __init__(self, brokers: SuiteBrokers) -> None:
        self._brokers = brokers
        self._server: asyncio.Server | None = None
        self._changing = asyncio.Lock()

    async def open(self) -> str:
        """Start to listen; return the address host:port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LINE_BYTES_MAX)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(f"{await self.answer(line.decode(errors='replace'))}\n".encode())
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the suite has closed the connection, or does not send lines: it gets no response
        finally:
            writer.close()

    async def answer(self, line: str) -> str:
        """Execute the command of a line, one at a time; return "ok" or "error: ..."."""
        async with self._changing:
            try:
                await self._do(line.split())
            except (ServerError, ServiceError, ComposeError, TimeoutError, ValueError, OSError) as error:
                return "error: " + " ".join(str(error).split())
        return "ok"

    async def _do(self, words: list[str]) -> None:
        if len(words) != 2 or not words[1].isdigit():
            raise ValueError("send: kill, stop, start or restart, and the index of a broker")
        do, index = words[0], int(words[1])
        if do == "kill":
            await self._brokers.kill(index)
        elif do == "stop":
            await self._brokers.stop(index)
        elif do == "start":
            await self._brokers.start(index)
        elif do == "restart":
            await self._brokers.stop(index)
            await self._brokers.start(index)
        else:
            raise ValueError(f"unknown action {do!r}: send kill, stop, start or restart")


def ask(do: str, index: int) -> None:
    """Send a command from a suite's script; return when it is done. Raises ControlError."""
    host, _, port = os.environ["STRANGERS_CONTROL"].rpartition(":")
    with (
        socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S) as connection,
        connection.makefile("rw") as lines,
    ):
        lines.write(f"{do} {index}\n")
        lines.flush()
        answer = lines.readline().strip()
    if answer != "ok":
        raise ControlError(answer or "the runner has closed the connection")


if __name__ == "__main__":
    try:
        ask(sys.argv[1], int(sys.argv[2]))
    except (IndexError, ValueError):
        sys.exit(str(__doc__).partition("\n\n")[2])
    except ControlError as refused:
        sys.exit(str(refused))
