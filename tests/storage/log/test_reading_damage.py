"""Reads of a log that was damaged while open: intact batches are returned, damaged ones raise an error."""

import pytest
from semel_protocol.batch import crc_ok, iterate
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.segment import CorruptLog
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put

BATCHES = 20
LAST_OFFSET_DELTA_AT = 24


@pytest.mark.proves("records-before-damage")
@pytest.mark.parametrize("damaged", range(BATCHES))
@pytest.mark.parametrize("interval_bytes", [0, 100, 4096])
def test_records_before_a_damaged_batch_are_read_then_the_read_fails(
    disk: MemoryDisk, damaged: int, interval_bytes: int
) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=interval_bytes, segment_bytes=600))
    for _ in range(BATCHES):
        put(log, make_batch(1))
    segment = max((each for each in log.segments if each.base_offset <= damaged), key=lambda each: each.base_offset)
    position = segment.position_of(damaged)
    path = segment.file.path
    stored = bytearray(disk.read_bytes(path))
    stored[position + LAST_OFFSET_DELTA_AT] ^= 4
    disk.overwrite(path, stored)
    at, read, heard = 0, [], False
    while not heard:
        try:
            data = log.read(at, up_to=BATCHES, bytes_max=10_000)
        except CorruptLog:
            break
        for header, batch in iterate(data):
            heard = not crc_ok(batch, header)  # an index led past it: the reader has the bytes, and checks them
            if heard:
                break
            read.append(header.base_offset)
            at = header.next_offset
    assert read == list(range(damaged))


@pytest.mark.proves("index-of-the-transaction-log")
@pytest.mark.parametrize("bit", range(0, 64, 3))
@pytest.mark.parametrize("entry", range(4))
def test_an_index_with_a_flipped_bit_hides_no_record(disk: MemoryDisk, entry: int, bit: int) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=100, segment_bytes=900))
    for _ in range(BATCHES):
        put(log, make_batch(1))
    log.close()
    path = log.segments[0].index.path
    stored = bytearray(disk.read_bytes(path))
    stored[entry * 8 + bit // 8] ^= 1 << bit % 8
    disk.overwrite(path, stored)
    log = open_log(disk, LogConfig(index_interval_bytes=100, segment_bytes=900), recovery_point=BATCHES, clean=True)
    for offset in range(BATCHES):
        found = [header.base_offset for header, _ in iterate(log.read(offset, up_to=BATCHES, bytes_max=250))]
        assert found == list(range(offset, offset + len(found)))
        assert found


@pytest.mark.proves("index-at-a-rebuild")
@pytest.mark.parametrize("bit", range(0, 64, 3))
@pytest.mark.parametrize("entry", range(4))
def test_producers_and_timestamps_are_found_past_an_index_with_a_flipped_bit(
    disk: MemoryDisk, entry: int, bit: int
) -> None:
    config = LogConfig(index_interval_bytes=100, segment_bytes=900)
    log = open_log(disk, config)
    for sequence in range(BATCHES):
        put(log, make_batch(1, timestamps=[NOW_MS + sequence], producer_id=7, sequence=sequence))
    path = log.segments[0].index.path
    log.close()
    stored = bytearray(disk.read_bytes(path))
    stored[entry * 8 + bit // 8] ^= 1 << bit % 8
    disk.overwrite(path, stored)
    for name in disk.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, config, recovery_point=BATCHES - 1)
    for offset in range(BATCHES):
        assert log.offset_for_timestamp(NOW_MS + offset, up_to=BATCHES) == (offset, NOW_MS + offset)
    again = put(log, make_batch(1, producer_id=7, sequence=BATCHES - 1))
    assert again.duplicate
    assert again.base_offset == BATCHES - 1
