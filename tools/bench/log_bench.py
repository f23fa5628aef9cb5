"""EDGE: measures the log without a broker: append, sync, read, recovery. Prints a table.

    python bench/log_bench.py [--directory D] [--gib 1.0]

The directory (default: a temporary one) needs slightly more free space than the given size.
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

from rich.console import Console
from rich.table import Table
from semel_protocol.batch import HEADER, read_header
from semel_protocol.records import Record, build_batch
from semel_storage.disk.os_disk import OsDisk
from semel_storage.log.log import CHECKPOINT_BYTES, Log
from semel_storage.segments.log_config import LogConfig

MIB = 1 << 20
Row = tuple[str, str, str]


def batch_of(records: int, value_bytes: int) -> bytes:
    return build_batch([Record(0, 1_700_000_000_000, None, b"v" * value_bytes)] * records)


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def open_log(
    disk: OsDisk, path: str, *, recovery_point: int | None = None, checkpoint_bytes: int = CHECKPOINT_BYTES
) -> Log:
    return Log.open(disk, path, LogConfig(), now_ms=0, recovery_point=recovery_point, checkpoint_bytes=checkpoint_bytes)


def append_rates(disk: OsDisk, root: str) -> Iterator[Row]:
    for records, value_bytes, count in [(1, 100, 30_000), (10, 100, 20_000), (160, 100, 5_000), (9_000, 100, 200)]:
        batch = batch_of(records, value_bytes)
        header = read_header(batch)
        log = open_log(disk, f"{root}/append-{records}", checkpoint_bytes=1 << 40)

        def append(log: Log = log, batch: bytes = batch, count: int = count) -> None:
            for _ in range(count):
                log.append(batch, header=header, leader_epoch=0, now_ms=0)  # noqa: B023

        seconds = timed(append)
        rate = f"{count * records / seconds:12,.0f} records/s  {count * len(batch) / seconds / MIB:8,.0f} MiB/s"
        yield f"append, {len(batch):,} bytes a batch", f"{seconds / count * 1e6:.1f} us a batch", rate
        log.abandon()
        disk.rmtree(f"{root}/append-{records}")


def idempotent_append(disk: OsDisk, root: str) -> Iterator[Row]:
    count = 20_000
    batches = [
        build_batch([Record(0, 0, None, b"v" * 100)], producer_id=1, producer_epoch=0, base_sequence=n)
        for n in range(count)
    ]
    log = open_log(disk, f"{root}/idempotent")

    def append() -> None:
        for batch in batches:
            log.append(batch, header=read_header(batch), leader_epoch=0, now_ms=0)

    seconds = timed(append)
    yield "append, idempotent, one record, header read", f"{seconds / count * 1e6:.1f} us a batch", ""
    log.abandon()


async def sync_rates(disk: OsDisk, root: str) -> list[Row]:
    rows = []
    batch = batch_of(1, 100)
    header = read_header(batch)
    for writers in (1, 10, 100):
        log = open_log(disk, f"{root}/sync-{writers}")

        async def write(log: Log, count: int) -> None:
            for _ in range(count):
                log.append(batch, header=header, leader_epoch=0, now_ms=0)
                await log.durability.sync()

        count = 300
        start = time.perf_counter()
        await asyncio.gather(*(write(log, count) for _ in range(writers)))
        seconds = time.perf_counter() - start
        rate = f"{count * writers / seconds:12,.0f} durable appends/s"
        rows.append((f"append + sync, {writers} writers", f"{seconds / count * 1e3:.2f} ms a round", rate))
        log.close()
    return rows


def fill(disk: OsDisk, path: str, size: int, batch: bytes) -> Log:
    log = open_log(disk, path)
    header = read_header(batch)

    async def run() -> None:
        for n in range(size // len(batch)):
            log.append(batch, header=header, leader_epoch=0, now_ms=0)
            if n % 64 == 0:
                await asyncio.sleep(0)  # lets the background sync run, as in a broker
        await asyncio.sleep(0.05)

    asyncio.run(run())
    return log


def read_rates(log: Log, records: int, label: str) -> Iterator[Row]:
    offset = 0

    def sequential() -> None:
        nonlocal offset
        while offset < log.end_offset:
            data = log.read(offset, up_to=log.end_offset, bytes_max=MIB)
            at = 0
            while at < len(data):
                header = HEADER.unpack_from(data, at)
                at += header[1] + 12
                offset = header[0] + header[6] + 1

    seconds = timed(sequential)
    size = log.size / MIB
    yield f"read through, {label}", f"{size / seconds:,.0f} MiB/s", f"{log.end_offset / seconds:12,.0f} records/s"
    rng = random.Random(1)
    for part in (0.01, 0.1, 1.0):
        offsets = [rng.randrange(int(log.end_offset * part)) for _ in range(2000)]

        def anywhere(offsets: list[int] = offsets) -> None:
            for wanted in offsets:
                log.read(wanted, up_to=log.end_offset, bytes_max=1000)

        seconds = timed(anywhere)
        yield f"read at random in the first {part:.0%}, {label}", f"{seconds / 2000 * 1e6:.1f} us a read", ""


def _open_into(found: list[Log], disk: OsDisk, path: str, recovery_point: int) -> None:
    found.append(open_log(disk, path, recovery_point=recovery_point))


def recovery_times(disk: OsDisk, path: str, log: Log) -> Iterator[Row]:
    point, end = log.durability.recovery_point, log.end_offset
    for label, recovery_point in [("after SIGKILL, from the last checkpoint", point), ("no checkpoint at all", 0)]:
        found: list[Log] = []
        seconds = timed(partial(_open_into, found, disk, path, recovery_point))
        assert found[0].end_offset == end
        found[0].abandon()
        scanned = (end - recovery_point) / end * log.size / MIB
        yield f"open {log.size / MIB:,.0f} MiB, {label}", f"{seconds:.3f} s", f"{scanned:12,.0f} MiB scanned"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory")
    parser.add_argument("--gib", type=float, default=1.0)
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="semel-log-bench-", dir=options.directory)
    disk = OsDisk()
    table = Table("what", "cost", "rate", title="semel_storage.Log")
    try:
        rows = [*append_rates(disk, root), *idempotent_append(disk, root), *asyncio.run(sync_rates(disk, root))]
        for records, part in [(10, 0.25), (1000, 1.0)]:
            batch = batch_of(records, 100)
            path = f"{root}/read-{records}"
            log = fill(disk, path, int(options.gib * part * (1 << 30)), batch)
            rows += read_rates(log, records, f"{len(batch):,} bytes a batch")
            log.abandon()
            rows += recovery_times(disk, path, log)
            disk.rmtree(path)
        for row in rows:
            table.add_row(*row)
        Console(width=140).print(table)
    finally:
        disk.close()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
