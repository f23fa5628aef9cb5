"""Measures requests over 1,000 to 10,000 partitions: the broker's CPU time, and how long others wait meanwhile.

`python -m tools.bench.wide` prints a table: the longest turn of the broker's loop (`timed_broker`), the longest wait of
a client in a process of its own that asks ApiVersions every few milliseconds, and full garbage collections.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from semel_protocol.api import APIS
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.schema import Message
from support.wide_requests import WIDE_REQUESTS, Wide, WideRequest

from tools.bench.many import RawClient
from tools.bench.measure import cpu_s
from tools.bench.timed_broker import TimedBroker

SIZES = (1_000, 3_000, 10_000)
PAUSE_S = 0.005


def bystander(port: int, pipe: Connection) -> None:
    """Ask ApiVersions; answer each message of the pipe with the longest wait since the last one, in seconds."""
    frame = b"".join(
        encode_request_frame(
            APIS[18], 3, 1, "bystander", ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        )
    )
    longest_s = 0.0
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        while True:
            began = time.perf_counter()
            connection.sendall(frame)
            assert connection.recv(65536), "the broker closed the connection"
            longest_s = max(longest_s, time.perf_counter() - began)
            if pipe.poll(PAUSE_S):
                if pipe.recv() is None:
                    return
                pipe.send(longest_s)
                longest_s = 0.0


class Measured:
    """A broker, a client, and the bystander. `do` prints a line of the table."""

    def __init__(self, process: TimedBroker, wide: Wide) -> None:
        self._process, self._wide = process, wide
        self._here, there = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        self._bystander = spawn.Process(target=bystander, args=(process.port, there), daemon=True)
        self._bystander.start()
        self._client = RawClient(process)

    def send(self, asked: WideRequest) -> None:
        """Send one request, and check its answer."""
        message, response = asked.make(self._wide), APIS[asked.key].response
        self.do(
            asked.name, lambda: self._learn(asked, self._client.request(asked.key, asked.version, message, response))
        )

    def _learn(self, asked: WideRequest, answer: Message) -> None:
        asked.check(answer)
        asked.learn(self._wide, answer)

    def do(self, name: str, work: Callable[[], None]) -> None:
        """Measure what the broker does meanwhile."""
        self._longest_wait_s()
        self._process.turns()
        began_s, cpu_began_s = time.perf_counter(), cpu_s(self._process)
        work()
        took_s, spent_s = time.perf_counter() - began_s, cpu_s(self._process) - cpu_began_s
        wait_ms, turns = self._longest_wait_s() * 1000, self._process.turns()
        print(
            f"{name:40} {self._wide.size:7,} {took_s:7.2f} {spent_s:7.2f} {turns.turn_ms:7.1f} {wait_ms:7.1f} "
            f"{turns.collections:4} {turns.collection_ms:7.1f}",
            flush=True,
        )
        for line in turns.where:
            print(f"    {line}")

    def _longest_wait_s(self) -> float:
        self._here.send(True)
        longest_s: float = self._here.recv()
        return longest_s

    def end(self) -> None:
        """End the bystander."""
        self._here.send(None)
        self._bystander.join()


def measure(
    directory: Path, size: int, requests: Iterable[WideRequest], *, durability: str = "os", has_lines: bool = False
) -> None:
    """Print a line for each request."""
    process = TimedBroker(directory, durability=durability)
    process.has_lines = has_lines
    process.start()
    try:
        measured = Measured(process, Wide(size, int(time.time() * 1000)))
        for asked in requests:
            measured.send(asked)
        measured.do("a second later", lambda: time.sleep(1))
        measured.end()
    finally:
        process.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--without", nargs="*", default=(), metavar="WORD", help="leave out rows that begin so")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="leave out all other rows; later ones may need them")
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--where", action="store_true", help="print the lines of the longest turns; it slows them down")
    given = parser.parse_args()
    requests = [asked for asked in WIDE_REQUESTS if not asked.name.startswith(tuple(given.without))]
    if given.only is not None:
        requests = [asked for asked in requests if asked.name.startswith(tuple(given.only))]
    print(f"{'':48} {'':>7} {'CPU':>7} {'turn':>7} {'wait':>7} {'full collections':>12}")
    print(f"{'request':40} {'rows':>7} {'s':>7} {'s':>7} {'ms':>7} {'ms':>7} {'':>4} {'ms':>7}")
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as directory:
            measure(Path(directory) / "data", size, requests, durability=given.durability, has_lines=given.where)


if __name__ == "__main__":
    main()
