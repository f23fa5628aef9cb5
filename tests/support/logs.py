"""Logs for tests: a data directory on a memory disk, batches in one line, and the content of a log as plain records."""

from __future__ import annotations

from collections.abc import Sequence

from semel_protocol.batch import iterate, read_header, stamp
from semel_protocol.records import Record, build_batch, decode_batch
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import AppendResult, Log
from semel_storage.log_directory import LogDirectory
from semel_storage.segments.log_config import LogConfig

NOW_MS = 1_700_000_000_000
ROOT = "data"
TOPIC = "t"

Pair = tuple[bytes | None, bytes | None]


async def no_pause() -> None:
    """The pause of a step in a test: none."""


class DataDirectory:
    """One log in a data directory that can be restarted, killed or lose its power."""

    def __init__(self, config: LogConfig, disk: MemoryDisk | None = None) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.config = config
        self.now_ms = NOW_MS
        self.disk.clock = lambda: self.now_ms
        self.open()

    def open(self) -> Log:
        self.logs = LogDirectory.open(self.disk, ROOT, node_id=1, cluster_id="c", directory_id="d")
        self.log = self.logs.open_log(TOPIC, 0, self.config, now_ms=self.now_ms)
        return self.log

    @classmethod
    def of_batches(cls, config: LogConfig, batches: Sequence[bytes]) -> DataDirectory:
        """A log that another broker wrote: these batches, stamped one after the other, in one segment."""
        disk, offset = MemoryDisk(), 0
        LogDirectory.open(disk, ROOT, node_id=1, cluster_id="c", directory_id="d").abandon()
        disk.mkdir(f"{ROOT}/{TOPIC}-0")
        file = disk.open(f"{ROOT}/{TOPIC}-0/{0:020d}.log")
        for batch in batches:
            stamped = bytearray(batch)
            stamp(stamped, offset, 0)
            file.append(stamped)
            offset = read_header(stamped).next_offset
        return cls(config, disk)

    @property
    def directory(self) -> str:
        return self.log.directory

    def restart(self) -> Log:
        """A clean stop and a start."""
        self.logs.close()
        return self.open()

    def kill_and_open(self) -> Log:
        """Kill the process and open the log again: all written data remains."""
        self.disk.kill()
        return self.open()

    def crash_and_open(self) -> Log:
        """Cut the power and open the log again: unsynced data is lost."""
        self.disk.crash()
        return self.open()

    def append(
        self,
        pairs: Sequence[Pair],
        *,
        codec: int = 0,
        producer: tuple[int, int, int] = (-1, -1, -1),
        timestamp_ms: int | None = None,
    ) -> AppendResult:
        """Append one batch; `producer`: id, epoch, base sequence."""
        at_ms = self.now_ms if timestamp_ms is None else timestamp_ms
        batch = batch_of(pairs, codec=codec, producer=producer, timestamp_ms=at_ms)
        return self.log.append(batch, header=read_header(batch), leader_epoch=0, now_ms=self.now_ms)


def batch_of(
    pairs: Sequence[Pair],
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp_ms: int = NOW_MS,
    is_transactional: bool = False,
) -> bytes:
    """One batch, its records a millisecond apart; `producer`: id, epoch, base sequence."""
    return build_batch(
        [Record(0, timestamp_ms + row, key, value) for row, (key, value) in enumerate(pairs)],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )


def records_of(log: Log, offset: int | None = None) -> list[Record]:
    """All records from `offset` (default: the start) on, decoded as a consumer decodes them."""
    at = log.start_offset if offset is None else offset
    first = at
    found: list[Record] = []
    while at < log.end_offset:
        data = log.read(at, up_to=log.end_offset, bytes_max=4096)
        if not data:
            break
        for header, batch in iterate(data):
            found += decode_batch(batch, header)
            at = header.next_offset
    return [record for record in found if record.offset >= first]


def pairs_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all records."""
    return [(record.offset, record.key, record.value) for record in records_of(log)]
