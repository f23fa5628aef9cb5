"""A child process for a kill test: appends, syncs, and prints the synced offset."""

import asyncio
import sys

from semel_storage.disk.os_disk import OsDisk
from semel_storage.log_directory import LogDirectory
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch, put

CONFIG = LogConfig(segment_bytes=40_000, index_interval_bytes=500)
CHECKPOINT_BYTES = 20_000
PRODUCER = 3


def value_of(offset: int) -> bytes:
    return b"%d:" % offset + b"x" * (offset * 7919 % 2000)


def open_all(root: str) -> LogDirectory:
    directory = LogDirectory.open(OsDisk(), root, node_id=1, cluster_id="c", directory_id="d")
    directory.open_log("t", 0, CONFIG, now_ms=NOW_MS, checkpoint_bytes=CHECKPOINT_BYTES)
    return directory


async def append_for_ever(root: str) -> None:
    log = open_all(root).logs["t", 0]
    while True:
        for _ in range(3):
            offset = log.end_offset
            put(log, make_batch(value=value_of(offset), producer_id=PRODUCER, sequence=offset))
        await log.durability.sync()
        sys.stdout.write(f"{log.durability.synced_offset}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append_for_ever(sys.argv[1]))
