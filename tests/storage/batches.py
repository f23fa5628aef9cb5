"""Helpers of the storage tests that build batches and open logs."""

from semel_protocol.batch import BatchHeader, iterate, read_header
from semel_protocol.records import Record, build_batch, decode_batch
from semel_storage.disk.disk import Disk
from semel_storage.log.log import AppendResult, Log
from semel_storage.segments.log_config import LogConfig

DIRECTORY = "data/flights-0"
NOW_MS = 1_700_000_000_000


def make_batch(
    count: int = 1,
    *,
    value: bytes = b"v",
    timestamps: list[int] | None = None,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    codec: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """`count` records of the same value; with a producer id, sequences from `sequence` on."""
    stamps = timestamps if timestamps is not None else [NOW_MS] * count
    has_producer = producer_id >= 0
    return build_batch(
        [Record(0, stamp, b"k", value) for stamp in stamps],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if has_producer else -1,
        base_sequence=sequence if has_producer else -1,
        is_transactional=is_transactional,
    )


def put(log: Log, batch: bytes, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> AppendResult:
    return log.append(batch, header=read_header(batch), leader_epoch=leader_epoch, now_ms=now_ms)


def open_log(
    disk: Disk, config: LogConfig | None = None, *, recovery_point: int | None = None, **options: object
) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        config or LogConfig(),
        now_ms=NOW_MS,
        recovery_point=recovery_point,
        **options,  # type: ignore[arg-type]
    )


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for header, _ in iterate(data)]


def read_all(log: Log, *, bytes_max: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from the start offset, read as a consumer does."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, up_to=log.end_offset, bytes_max=bytes_max)
        assert data, f"nothing at {offset}, the log ends at {log.end_offset}"
        for header, batch in iterate(data):
            found += [(record.offset, record.value) for record in decode_batch(batch) if record.offset >= offset]
            offset = max(offset, header.next_offset)
    return found
