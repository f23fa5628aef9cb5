"""A client that only asks ApiVersions, every 10 ms, in a process of its own: `python -m faults.slow_disk.bystander`.

    python -m faults.slow_disk.bystander PORT PID FILE

It appends a line of JSON to FILE for each request: when it was sent, how long the answer took, and how long the two
processes waited for a CPU meanwhile, as the kernel counts it (`schedstat`). Another thread of the broker counts, too:
it may hold the interpreter's lock. It ends with its connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from semel_protocol.api import API_OF
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest

EVERY_S = 0.01
LOOK_S = 0.01
ANSWER_S = 120.0
NS_PER_MS = 1e6


class Wait(msgspec.Struct, frozen=True):
    """One request. `began_ns`: the monotonic clock of this machine. `is_answered`: False if the connection ended."""

    began_ns: int
    ms: float
    cpu_ms: float
    is_answered: bool = True

    @property
    def for_broker_ms(self) -> float:
        """The part of the wait in which neither process waited for a CPU."""
        return max(0.0, self.ms - self.cpu_ms)


class Bystander:
    """The process, for a broker that listens at `port` with this process id. It ends with the broker, or by `end`."""

    def __init__(self, port: int, pid: int, file: Path) -> None:
        self._file = file
        file.write_bytes(b"")
        self._process = subprocess.Popen([sys.executable, "-m", __name__, str(port), str(pid), str(file)])

    async def ready(self) -> None:
        """Return once the first request is answered. Raises RuntimeError."""
        if not await self._until(bool):
            raise RuntimeError("the bystander has ended: see its standard error")

    async def waits(self, since_ns: int) -> list[Wait]:
        """The requests that were sent since `since_ns`. Waits for open requests."""
        now_ns = time.monotonic_ns()
        waits = await self._until(lambda waits: bool(waits) and waits[-1].began_ns >= now_ns)
        return [wait for wait in waits if wait.began_ns >= since_ns]

    async def _until(self, is_enough: Callable[[list[Wait]], bool]) -> list[Wait]:
        async with asyncio.timeout(ANSWER_S):
            while True:
                has_ended = self._process.poll() is not None
                waits = self._read()
                if has_ended or is_enough(waits):
                    return waits
                await asyncio.sleep(LOOK_S)

    def _read(self) -> list[Wait]:
        whole, _, _ = self._file.read_bytes().rpartition(b"\n")
        return msgspec.json.Decoder(Wait).decode_lines(whole)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def main(port: int, pid: int, path: str) -> None:
    """Send requests until the connection ends."""
    api = API_OF[ApiVersionsRequest]
    assert api.advertised is not None
    frame = b"".join(encode_request_frame(api, api.advertised[1], 1, "bystander", ApiVersionsRequest()))
    with socket.create_connection(("127.0.0.1", port)) as connection, Path(path).open("ab", buffering=0) as file:
        is_answered = True
        while is_answered:
            before, began_ns = delays_ns(pid), time.monotonic_ns()
            is_answered = _ask(connection, frame)
            ms = (time.monotonic_ns() - began_ns) / NS_PER_MS
            cpu_ms = waited_ms(before, delays_ns(pid), pid)
            file.write(msgspec.json.encode(Wait(began_ns, ms, cpu_ms, is_answered)) + b"\n")
            time.sleep(EVERY_S)


def _ask(connection: socket.socket, frame: bytes) -> bool:
    """False: the connection ended."""
    try:
        connection.sendall(frame)
        return _receive(connection, int.from_bytes(_receive(connection, 4))) != b""
    except OSError:
        return False


def _receive(connection: socket.socket, size: int) -> bytes:
    """Receive `count` bytes; fewer if the connection ended."""
    data = b""
    while len(data) < size and (chunk := connection.recv(size - len(data))):
        data += chunk
    return data


def delays_ns(pid: int) -> dict[Path, int]:
    """The time for which each thread of that process and of this one has waited for a CPU so far; empty if it is not
    known.
    """
    try:
        files = [task / "schedstat" for each in (pid, os.getpid()) for task in Path(f"/proc/{each}/task").iterdir()]
        return {file: int(file.read_text().split()[1]) for file in files}
    except (OSError, IndexError):  # a thread has ended, or the kernel does not count
        return {}


def waited_ms(before: dict[Path, int], after: dict[Path, int], pid: int) -> float:
    """The time in between for which the first threads of both processes, and one other thread of the broker, have
    waited.
    """
    waited = {file: ns - before.get(file, 0) for file, ns in after.items()} if before else {}
    firsts = [waited.pop(Path(f"/proc/{each}/task/{each}/schedstat"), 0) for each in (pid, os.getpid())]
    return (sum(firsts) + max(waited.values(), default=0)) / NS_PER_MS


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
