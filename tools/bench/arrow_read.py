"""Measures `to_arrow`: the columns of fetched batches in one pass, beside an object for each record, in CPU time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from semel._arrow.columns import RecordColumns
from semel._arrow.decode import Slice, arrow_batches
from semel._subscription.fetch_buffer import Decoding, FetchBuffer
from semel.serializers import JsonDeserializer
from semel.structs import TopicPartition
from semel_protocol.batch import BatchHeader, read_header
from semel_protocol.records import Record, build_batch

from tools.bench.figure import Figure, per_second, ratio

CHUNK_BYTES = 4 << 20
BATCH_ROWS = 500
TIMES = 5


class Sale(msgspec.Struct):
    item: str
    count: int
    price: float


def arrow_read(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure one answer of 4 MiB, with JSON values of about 100 bytes, as each way makes a table of it."""
    data, places, rows = _answer()
    bytes_alone = RecordColumns(None, None, None, fixed=True)
    structs = RecordColumns(None, JsonDeserializer(Sale), None, fixed=True)
    wanted = Slice("sales", 0, 0, rows)

    def in_one_pass() -> None:
        assert sum(batch.num_rows for batch in arrow_batches(data, places, wanted)) == rows

    def object_per_record() -> None:
        buffer = FetchBuffer(TopicPartition("sales", 0))
        buffer.restart(0)
        buffer.add(data)
        buffer.fill(Decoding(check_crcs=False), rows)
        assert bytes_alone.of_records(buffer.take(rows)).num_rows == rows

    def structs_of_values() -> None:
        async def made() -> None:
            for batch in arrow_batches(data, places, wanted):
                await structs.of_fetched(batch)

        asyncio.run(made())

    columns, objects, values = (rows / _cpu_s(way, runs) for way in (in_one_pass, object_per_record, structs_of_values))
    return [
        per_second("to Arrow, a core, columns of whole batches (BatchReader)", columns),
        per_second("to Arrow, a core, an object for each record (Consumer)", objects),
        ratio("  the first, of the second's", columns / objects),
        per_second("to Arrow, a core, JSON values as a struct column (BatchReader)", values),
    ]


def _answer() -> tuple[bytes, list[tuple[BatchHeader, int]], int]:
    rng = random.Random(7)
    chunk, places, offset = bytearray(), [], 0
    while len(chunk) < CHUNK_BYTES:
        values = [
            msgspec.json.encode(Sale(f"{'item-' * 10}{rng.randrange(1000)}", rng.randrange(100), rng.random()))
            for _ in range(BATCH_ROWS)
        ]
        batch = build_batch(
            [Record(offset + n, 1_700_000_000_000 + n, b"%d" % n, value) for n, value in enumerate(values)],
            base_offset=offset,
        )
        places.append((read_header(batch), len(chunk)))
        chunk += batch
        offset += BATCH_ROWS
    return bytes(chunk), places, offset


def _cpu_s(way: Callable[[], None], runs: int) -> float:
    best = float("inf")
    for _ in range(max(runs, 1) * TIMES):
        started = time.process_time()
        way()
        best = min(best, time.process_time() - started)
    return best
