"""One run of `semel produce`: lines become records, in order, with bounded memory and an error for each lost line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from semel_protocol.records import record_bytes_max

from semel import Producer, RecordMetadata
from semel._command_line.client_settings import ClientSettings
from semel._command_line.client_start import UnreachableError, reaches_all
from semel._command_line.common import failure, say
from semel._edge import Edge
from semel._produce.partitioner import key_hash
from semel._texts import plural
from semel.cli.produce.lines import Lines, LineTooLongError
from semel.cli.produce.stall import say_stalls
from semel.cli.produce.topic_check import batch_bytes_max, create, exists
from semel.cli.produce.value_block import (
    COUNT_MAX,
    RECORD_OVERHEAD_BYTES_MAX,
    encoded_block,
    encoded_headers,
    encoded_keyed_block,
)
from semel.errors import KafkaError, MessageSizeTooLargeError

BLOCK_LINES_MIN = 32
"""Fewer lines that arrive together are sent as single records, which share batches with those before and after."""
BLOCK_BYTES_MAX = 1 << 20
MAX_REQUEST_SIZE = 1_048_576


class Job:
    """separator: splits a line into key and value; None for records without a key. partition: None for any."""

    def __init__(
        self,
        topic: str,
        separator: bytes | None,
        partition: int | None,
        headers: list[tuple[str, bytes]],
        *,
        may_create: bool,
        quiet: bool,
    ) -> None:
        self._topic, self._separator, self._partition, self._headers = topic, separator, partition, headers
        self._may_create, self._quiet = may_create, quiet
        self._encoded_headers = encoded_headers(tuple(headers))
        self._now_ms = Edge().now_ms
        self._sent = self._failed = self._stored = self._lines = 0
        self._failure: str | None = None
        self._last: tuple[int, int] | None = None
        self._line_bytes_max = self._block_bytes_max = 0
        self._input: Lines | None = None

    async def run(
        self,
        client: ClientSettings,
        source: BinaryIO,
        size_bytes: int | None,
        options: dict[str, Any],
        defaults: dict[str, Any],
        *,
        hidden: bool,
    ) -> None:
        """options, defaults: settings of the producer, as ClientSettings.producer takes them. hidden: no progress bar.

        Raises ClickException when a line could not be stored.
        """
        request_bytes_max = client.value("max_request_size", MAX_REQUEST_SIZE)
        self._line_bytes_max = request_bytes_max - record_bytes_max(None, b"", self._headers)
        async with client.admin() as admin:
            is_there = await exists(admin, self._topic, may_create=self._may_create)
            limit = min(request_bytes_max, BLOCK_BYTES_MAX)
            self._block_bytes_max = min(limit, await batch_bytes_max(admin, self._topic, limit)) if is_there else limit
            others = None if is_there else await admin.list_topics()
        try:
            await self._produce(client, source, size_bytes, options, defaults, others=others, hidden=hidden)
        except UnreachableError as e:
            if not self._sent:
                raise
            raise failure(f"{plural(self._stored, 'record')} of {self._sent:,} stored: {e.message}") from None
        if self._failure is not None:
            raise failure(f"{plural(self._stored, 'record')} stored, but {self._failure}")

    async def _produce(
        self,
        client: ClientSettings,
        source: BinaryIO,
        size_bytes: int | None,
        options: dict[str, Any],
        defaults: dict[str, Any],
        *,
        others: Iterable[str] | None,
        hidden: bool,
    ) -> None:
        """others: the topics that there are, if this one is missing."""
        async with client.producer(options, defaults) as producer:
            if others is not None:
                await create(producer, self._topic, others, quiet=self._quiet)
            all_acks = options.get("acks", client.value("acks", "all")) in ("all", -1)
            is_connected = partial(reaches_all, producer)
            watch = asyncio.create_task(
                say_stalls(client, self._topic, self._counts, all_acks=all_acks, is_connected=is_connected)
            )
            try:
                await self._send_all(producer, source, size_bytes, hidden)
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    def end_input(self) -> bool:
        """End the input as if it had no more bytes. False: it is not read yet."""
        if self._input is None:
            return False
        self._input.end()
        return True

    def summarize(self) -> None:
        """Print the number of stored records on standard error."""
        place = "" if self._last is None else ", the last one at partition {}, offset {}".format(*self._last)
        say(f"{plural(self._stored, 'record')} stored in {self._topic}{place}", err=True)

    async def _send_all(self, producer: Producer, source: BinaryIO, size_bytes: int | None, hidden: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[stored]}"))
        hidden = hidden or not console.is_terminal
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden, transient=True) as progress:
            bar = progress.add_task(self._topic, total=size_bytes, stored="")
            try:
                self._input = Lines(source, self._line_bytes_max)
                async for lines in self._input.read():
                    await self._send(producer, lines)
                    if not hidden:
                        self._advance(progress, bar, lines)
                    if self._failure is not None:
                        break
            except LineTooLongError:
                self._fail(self._too_long(self._lines + 1))
            await producer.flush()

    def _advance(self, progress: Progress, bar: TaskID, lines: Sequence[bytes]) -> None:
        progress.update(
            bar, advance=sum(map(len, lines)) + len(lines), stored=f"{plural(self._stored, 'record')} stored"
        )

    async def _send(self, producer: Producer, lines: list[bytes]) -> None:
        """Send lines up to the first one that cannot be a record."""
        if max(map(len, lines)) > self._line_bytes_max:
            at = next(at for at, line in enumerate(lines) if len(line) > self._line_bytes_max)
            if at:
                await self._send(producer, lines[:at])
            self._fail(self._too_long(self._lines + 1))
        elif len(lines) < BLOCK_LINES_MIN:
            for line in lines:
                await self._send_one(producer, line)
                if self._failure is not None:
                    break
        elif self._separator is not None:
            await self._send_keyed(producer, lines, self._separator)
        else:
            first = self._lines + 1
            self._lines += len(lines)
            await self._send_block(producer, self._partition, None, lines, range(first, first + len(lines)))

    async def _send_keyed(self, producer: Producer, lines: list[bytes], separator: bytes) -> None:
        """Send the lines of each partition together. Lines with the same key stay in order."""
        count = len(await producer.partitions_for(self._topic))
        parts: dict[int, tuple[list[bytes], list[bytes], list[int]]] = {}
        wrong: bytes | None = None
        for number, line in enumerate(lines, start=self._lines + 1):
            key, found, value = line.partition(separator)
            if not found:
                wrong = line
                break
            partition = key_hash(key) % count if self._partition is None else self._partition
            keys, values, numbers = parts.setdefault(partition, ([], [], []))
            keys.append(key)
            values.append(value)
            numbers.append(number)
        self._lines += sum(len(numbers) for _, _, numbers in parts.values())
        for partition, (keys, values, numbers) in parts.items():
            await self._send_block(producer, partition, keys, values, numbers)
        if wrong is not None:
            self._fail(self._not_separated(separator, wrong))

    async def _send_block(
        self,
        producer: Producer,
        partition: int | None,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
        numbers: Sequence[int],
    ) -> None:
        """Send values as whole batches; halve them until each fits the topic's limit. numbers: those of the lines."""
        overhead = RECORD_OVERHEAD_BYTES_MAX + len(self._encoded_headers)
        size = sum(map(len, values)) + sum(map(len, keys or ())) + len(values) * overhead
        if len(values) > 1 and (size > self._block_bytes_max or len(values) > COUNT_MAX):
            at = len(values) // 2
            await self._send_block(producer, partition, keys and keys[:at], values[:at], numbers[:at])
            await self._send_block(producer, partition, keys and keys[at:], values[at:], numbers[at:])
            return
        if self._failure is not None:
            return
        if keys is None:
            records = encoded_block(values, self._encoded_headers)
        else:
            records = encoded_keyed_block(keys, values, self._encoded_headers)
        now_ms = self._now_ms()
        future = await producer.send_encoded(self._topic, partition, records, len(values), now_ms, now_ms)
        self._follow(future, numbers)

    async def _send_one(self, producer: Producer, line: bytes) -> None:
        key: bytes | None = None
        if self._separator is not None:
            key, found, line = line.partition(self._separator)
            if not found:
                self._fail(self._not_separated(self._separator, key))
                return
        try:
            future = await producer.send(
                self._topic, line, key, partition=self._partition, headers=self._headers or None
            )
        except MessageSizeTooLargeError:
            self._fail(self._too_long(self._lines + 1))
        else:
            self._lines += 1
            self._follow(future, range(self._lines, self._lines + 1))

    def _follow(self, future: asyncio.Future[RecordMetadata], numbers: Sequence[int]) -> None:
        """Count the lines with these numbers as sent, and later their outcome."""
        self._sent += len(numbers)
        future.add_done_callback(partial(self._done, numbers[0], numbers[-1], len(numbers)))

    def _done(self, first: int, last: int, count: int, future: asyncio.Future[RecordMetadata]) -> None:
        error = future.exception()
        if error is None:
            self._stored += count
            found = future.result()
            self._last = (found.partition, found.offset + count - 1) if found.offset >= 0 else None
            return
        self._failed += count
        where = f"line {first}" if count == 1 else f"lines {first} to {last}"
        if 1 < count <= last - first:
            where = f"{count} of the {where}"
        advice = ""
        if isinstance(error, MessageSizeTooLargeError):
            advice = f". Raise the topic's limit: semel topic alter {self._topic} -c max.message.bytes=N"
        reason = error.message if isinstance(error, KafkaError) else error
        self._fail(f"{where} {'is' if count == 1 else 'are'} not stored: {reason}{advice}")

    def _fail(self, text: str) -> None:
        """Keep the first failure."""
        self._failure = self._failure or text

    def _not_separated(self, separator: bytes, line: bytes) -> str:
        shown = separator.decode(errors="replace")
        return f"line {self._lines + 1} has no {shown!r} between key and value: {line[:80]!r}"

    def _too_long(self, line: int) -> str:
        return (
            f"line {line} is longer than a record may be: {self._line_bytes_max:,} bytes. Raise max_request_size with "
            "-X max_request_size=N, and the topic's max.message.bytes with `semel topic alter`"
        )

    def _counts(self) -> tuple[int, int]:
        """The records sent, and those with an outcome."""
        return self._sent, self._stored + self._failed
