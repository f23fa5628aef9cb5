"""EDGE: `semel produce`: sends each line of standard input or of a file as one record, idempotently."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from semel import Producer, RecordMetadata
from semel.cli.shared.common import bootstrap_option, failure, key_values, run, say
from semel.cli.shared.times import plural

CHUNK_BYTES = 1 << 16
INTERRUPTED = 130
"""The exit status after Ctrl-C, as of a process that SIGINT has ended."""


@click.command()
@bootstrap_option
@click.argument("topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-k",
    "--key-separator",
    metavar="TEXT",
    help="Split each line into key and value at the first TEXT. Default: records without a key.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records to this partition. Default: chosen by the key; without keys spread over all partitions.",
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="KEY=VALUE", help="Add a header to each record; repeatable."
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="The compression of record batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="When a record counts as stored: all: on all in-sync replicas; 1: on the leader; 0: once it is sent.",
)
@click.option(
    "--linger-ms",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="MS",
    help="Milliseconds that a batch waits for more records.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print neither progress bar nor summary.")
def produce(
    bootstrap: str,
    topic: str,
    file: Path | None,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    compression: str,
    acks: str,
    linger_ms: int,
    quiet: bool,
) -> None:
    """Write each line of FILE (default: standard input) to TOPIC as one record.

    With --acks all each record is stored exactly once, also if a broker restarts meanwhile. Exit status 1 if a record
    could not be stored.
    """
    pairs = [(key, value.encode()) for key, value in key_values(headers, "--header").items()]
    settings = {
        "acks": "all" if acks == "all" else int(acks),
        "enable_idempotence": acks == "all",
        "compression_type": None if compression == "none" else compression,
        "linger_ms": linger_ms,
    }
    job = _Job(topic, None if key_separator is None else key_separator.encode(), partition, pairs)
    with file.open("rb") if file else sys.stdin.buffer as source:
        hidden = quiet or (file is None and sys.stdin.isatty())
        try:
            run(job.run(bootstrap, source, file.stat().st_size if file else None, settings, hidden))
        except KeyboardInterrupt:
            if not quiet:
                job.summarize()
            sys.exit(INTERRUPTED)
    if not quiet:
        job.summarize()


class _Job:
    """One run of the command: its settings and its results."""

    def __init__(
        self, topic: str, separator: bytes | None, partition: int | None, headers: list[tuple[str, bytes]]
    ) -> None:
        self.topic, self.separator, self.partition, self.headers = topic, separator, partition, headers
        self.stored = 0
        self.lines = 0
        self.failure: BaseException | None = None
        self.last: RecordMetadata | None = None

    async def run(
        self, bootstrap: str, source: BinaryIO, size_bytes: int | None, settings: dict[str, Any], hidden: bool
    ) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        hidden = hidden or not console.is_terminal
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden, transient=True) as progress:
            bar = progress.add_task(self.topic, total=size_bytes)
            async with Producer(bootstrap_servers=bootstrap, **settings) as producer:
                async for chunk in _lines(source):
                    for line in chunk:
                        if self.failure is None:
                            await self._send(producer, line)
                    progress.advance(bar, sum(map(len, chunk)) + len(chunk))
                    if self.failure is not None:
                        break
                await producer.flush()
        if self.failure is not None:
            raise failure(f"{plural(self.stored, 'record')} stored before the failure: {self.failure}")

    def summarize(self) -> None:
        place = f", the last one at partition {self.last.partition}, offset {self.last.offset}" if self.last else ""
        say(f"{plural(self.stored, 'record')} stored in {self.topic}{place}", err=True)

    async def _send(self, producer: Producer, line: bytes) -> None:
        key: bytes | None = None
        self.lines += 1
        if self.separator is not None:
            key, found, line = line.partition(self.separator)
            if not found:
                separator = self.separator.decode(errors="replace")
                self.failure = ValueError(f"line {self.lines} has no {separator!r} between key and value: {key[:80]!r}")
                return
        future = await producer.send(self.topic, line, key, partition=self.partition, headers=self.headers or None)
        future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[RecordMetadata]) -> None:
        if error := future.exception():
            self.failure = self.failure or error
        else:
            self.stored += 1
            self.last = future.result()


async def _lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Whole lines as they arrive, without line ends. A thread reads, so that the event loop can send meanwhile."""
    loop = asyncio.get_running_loop()
    read = getattr(source, "read1", source.read)
    rest = b""
    while chunk := await loop.run_in_executor(None, read, CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in whole]
    if rest:
        yield [rest]
