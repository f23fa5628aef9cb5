"""Compares look-ups by time in a log with its records, at the end of a run."""

from __future__ import annotations

from semel_protocol.records import decode_batch
from semel_storage.log.log import Log

TIMES = 20
"""Times that are looked up in each log."""


def check_look_ups(log: Log) -> None:
    """Assert that the record with the newest timestamp, and the first ones at or after some times, are found.

    Crashes and truncations have rebuilt the indexes by time, or removed some of their entries.
    """
    found = [
        (record.offset, max(record.timestamp, -1))
        for segment in log.segments
        for _, header, batch in segment.scan()
        if not header.is_control
        for record in decode_batch(batch, header)
        if record.offset >= log.start_offset
    ]
    newest = max(found, key=lambda pair: (pair[1], -pair[0]), default=None)
    assert log.max_timestamp(up_to=log.end_offset) == newest, (log.directory, newest)
    for _, timestamp in found[:: len(found) // TIMES + 1]:
        if timestamp >= 0:
            first = next(pair for pair in found if pair[1] >= timestamp)
            assert log.offset_for_timestamp(timestamp, up_to=log.end_offset) == first, (log.directory, timestamp)
