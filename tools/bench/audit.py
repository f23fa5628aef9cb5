"""Measures the audit of a data directory in megabytes per second: large batches, and one-record transactions."""

from __future__ import annotations

import multiprocessing
import statistics
from pathlib import Path

import numpy as np
from semel_protocol.batch import read_header, stamp
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.records import Record, build_batch

from tools.bench.figure import Figure, per_second

MB_S = 200
PARTITIONS = 4
SEGMENT_BYTES = 256 << 20
BATCH_RECORDS = 150
"""Records of 100 bytes in one batch: the default batch size of a client, 16 KiB."""
TRANSACTIONS_BYTES = 64 << 20


def audit(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure both on Spark, with one task per core; the start of Spark is excluded."""
    plain, small = directory / "plain", directory / "transactions"
    for number in range(PARTITIONS):
        _write(plain / f"bench-{number}", _batch_copies(SEGMENT_BYTES))
        _write(small / f"bench-{number}", _transactions(TRANSACTIONS_BYTES // PARTITIONS))
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # Spark ends with its process
        rates = pool.apply(_rates, ([plain, small], runs))
    names = ("audit, batches of 150 records", "audit, one-record transactions with their markers")
    aims = (MB_S, None)
    return [
        per_second(name, rate, aim)._replace(shown=f"{rate:,.0f} MB/s", aim=f">= {aim} MB/s" if aim else "")
        for name, rate, aim in zip(names, rates, aims, strict=True)
    ]


def _rates(directories: list[Path], runs: int) -> list[float]:
    from pyspark_semel.audit import job
    from pyspark_semel.pipeline.session import session

    found = []
    with session("bench") as spark:
        job.audit(spark, directories[1])  # starts the workers
        for directory in directories:
            audits = [job.audit(spark, directory) for _ in range(runs)]
            assert all(each.is_sound for each in audits)
            size = sum(each.size_bytes for each in audits[0].partitions)
            found.append(statistics.median(size / 1e6 / each.seconds for each in audits))
    return found


def _write(partition: Path, data: bytes) -> None:
    partition.mkdir(parents=True)
    (partition / f"{0:020d}.log").write_bytes(data)


def _batch_copies(size: int) -> bytes:
    """Copy one batch without a producer; only the offset differs, which the CRC does not cover."""
    values = np.random.default_rng(1).bytes(100 * BATCH_RECORDS)
    records = [Record(n, 1, None, values[100 * n : 100 * (n + 1)]) for n in range(BATCH_RECORDS)]
    one = np.frombuffer(build_batch(records), np.uint8)
    many = np.tile(one, (size // len(one), 1))
    offsets = (np.arange(len(many)) * BATCH_RECORDS).astype(">i8")
    many[:, :8] = offsets.view(np.uint8).reshape(-1, 8)
    return many.tobytes()


def _transactions(size: int) -> bytes:
    out, offset, epoch, producer_id = bytearray(), 0, 0, 0
    while len(out) < size:
        if epoch == 32_000:
            epoch, producer_id = 0, producer_id + 1
        record = Record(0, 1, None, b"v" * 100)
        data = bytearray(
            build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        )
        epoch += 1
        marker = EndTxnMarker(ControlType.COMMIT, 0)
        end = bytearray(build_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=1))
        for batch in (data, end):
            stamp(batch, offset, 0)
            offset = read_header(batch).next_offset
            out += batch
    return bytes(out)
