"""Producer snapshots, `<end offset>.snapshot`: Kafka's version 1 with a trailer that Kafka skips.

version int16, crc uint32 (CRC-32C of all that follows), count int32, then per producer: producer id int64, epoch int16,
last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of
the open transaction int64 (-1: none).

Kafka's entry has only the last batch of a producer, so that after a restart the retry of an earlier batch is refused.
The trailer has the whole window of batches: `SML3`, end offset int64 (must match the file name), count int32, number of
entries int32 and their CRC-32C uint32 of the transaction index of the segment that ends here, then per producer:
producer id int64, last append ms int64, accepted int32, offset int64 of the marker if that was its last batch (-1
otherwise), whether the marker was a commit int8, number of batches int8; per batch: last sequence int32, last offset
int64, offset delta int32, timestamp int64.
Kafka reads the entries, ignores the bytes after them and includes them in its checksum, so the trailer is compatible.
"""

import re
from collections.abc import Collection, Generator, Iterable, Sequence
from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 (it is a class)

import msgspec
from crc32c import crc32c

from semel_storage.disk.disk import Buffer, Disk, EventCallback, ignore_event
from semel_storage.producers.producers import NO_OFFSET, BatchPlace, MarkerPlace, ProducerState
from semel_storage.segments.segment import file_name, offset_of

SNAPSHOT = ".snapshot"
OWN_NAME = re.compile(r"\d{20}\.snapshot")
VERSION = 1
TRAILER_MAGIC = b"SML3"
NO_ABORTED = (0, 0)
"""Number and CRC-32C of the entries of an empty index of aborted transactions (`TransactionIndex.sums`)."""

_HEAD = Layout(">hI")
_COUNT = Layout(">i")
_ENTRY = Layout(">qhiqiqiq")
_TRAILER = Layout(">4sqiiI")
_WINDOW = Layout(">qqiqbb")
_PLACE = Layout(">iqiq")


class CorruptSnapshot(Exception):  # noqa: N818 (named after its cause)
    """The bytes are not a producer snapshot of version 1, or do not match their CRC."""


def encode(states: Iterable[ProducerState], *, offset: int = 0, aborted: tuple[int, int] = NO_ABORTED) -> bytes:
    """Encode the snapshot of these producers as of `offset`; `aborted`: see `NO_ABORTED`."""
    ordered = sorted(states, key=lambda state: state.producer_id)
    body = bytearray(_COUNT.pack(len(ordered)))
    trailer = bytearray(_TRAILER.pack(TRAILER_MAGIC, offset, len(ordered), *aborted))
    for state in ordered:
        last = state.batches[-1] if state.batches else None
        body += _ENTRY.pack(
            state.producer_id,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            last.offset_delta if last else 0,
            state.last_timestamp,
            state.coordinator_epoch,
            state.txn_first_offset,
        )
        marker = state.marker or MarkerPlace(NO_OFFSET, False)
        trailer += _WINDOW.pack(
            state.producer_id, state.last_append_ms, state.accepted, marker.offset, marker.is_commit, len(state.batches)
        )
        for place in state.batches:
            trailer += _PLACE.pack(place.last_sequence, place.last_offset, place.offset_delta, place.timestamp)
    body += trailer
    return _HEAD.pack(VERSION, crc32c(body)) + bytes(body)


def decode(data: Buffer, *, offset: int | None = None, now_ms: int = -1) -> list[ProducerState]:
    """Decode the producers of a snapshot file; with `offset`, the file must be of this offset.

    `now_ms` is the time of the last append if the file has none, as those of Kafka. Raises CorruptSnapshot.
    """
    try:
        version, crc = _HEAD.unpack_from(data, 0)
        if version != VERSION:
            raise CorruptSnapshot(f"version {version}, expected {VERSION}")
        if crc32c(memoryview(data)[_HEAD.size :]) != crc:
            raise CorruptSnapshot("the CRC does not match")
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
        at = _HEAD.size + _COUNT.size
        entries = [_ENTRY.unpack_from(data, at + place * _ENTRY.size) for place in range(count)]
        windows = _decode_trailer(data, at + count * _ENTRY.size, offset)
    except LayoutError as error:
        raise CorruptSnapshot(f"too short: {error}") from error
    return [_state(entry, windows, now_ms) for entry in entries]


class _Window(msgspec.Struct, frozen=True, gc=False):
    """The fields of one producer in the trailer."""

    last_append_ms: int
    accepted: int
    marker: MarkerPlace | None
    batches: tuple[BatchPlace, ...]


def _decode_trailer(data: Buffer, at: int, offset: int | None) -> dict[int, _Window]:
    windows: dict[int, _Window] = {}
    if bytes(memoryview(data)[at : at + 4]) != TRAILER_MAGIC:
        return windows
    _, end_offset, count, *_ = _TRAILER.unpack_from(data, at)
    if offset is not None and end_offset != offset:
        raise CorruptSnapshot(f"it was written for offset {end_offset}")
    at += _TRAILER.size
    for _ in range(count):
        producer_id, last_append_ms, accepted, marker_offset, is_commit, batches = _WINDOW.unpack_from(data, at)
        at += _WINDOW.size
        places = tuple(BatchPlace(*_PLACE.unpack_from(data, at + n * _PLACE.size)) for n in range(batches))
        at += batches * _PLACE.size
        marker = MarkerPlace(marker_offset, bool(is_commit)) if marker_offset != NO_OFFSET else None
        windows[producer_id] = _Window(last_append_ms, accepted, marker, places)
    return windows


def _state(entry: tuple[int, ...], windows: dict[int, _Window], now_ms: int) -> ProducerState:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = entry
    window = windows.get(producer_id)
    if window is None:  # written by Kafka
        known = last_offset != NO_OFFSET
        places = (BatchPlace(last_sequence, last_offset, delta, timestamp),) if known else ()
        window = _Window(now_ms, delta + 1 if known else 0, None, places)
    return ProducerState(
        producer_id=producer_id,
        epoch=epoch,
        batches=window.batches,
        accepted=window.accepted,
        last_timestamp=timestamp,
        last_append_ms=window.last_append_ms,
        coordinator_epoch=coordinator_epoch,
        txn_first_offset=txn_first_offset,
        marker=window.marker,
    )


class Snapshots:
    """The snapshot files of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offset_of(name) for name in disk.listdir(directory) if OWN_NAME.fullmatch(name))

    def has(self, offset: int) -> bool:
        return offset in self.offsets

    def write(
        self,
        offset: int,
        states: Iterable[ProducerState],
        *,
        keep: Collection[int],
        aborted: tuple[int, int] = NO_ABORTED,
        durable: bool = False,
        later: bool = False,
    ) -> None:
        """Write the snapshot of `offset`; then remove all but it, its predecessor and those in `keep`.

        Callers keep those at segment bases: truncation starts from them, and they replace the state of deleted
        segments. Usually not synced: a snapshot that a power loss damages fails its CRC, and recovery replays the log
        from the one before it. `later`: it is a debt (`Disk.write_later`). `durable`: it is synced at once.
        """
        data = encode(states, offset=offset, aborted=aborted)
        if later:
            self._disk.write_later(self._path(offset), data)
        else:
            self._disk.write_atomically(self._path(offset), data, durable=durable)
        previous = max((known for known in self.offsets if known < offset), default=offset)
        kept = {offset, previous, *keep}
        self._remove([known for known in self.offsets if known not in kept])
        self.offsets = sorted({offset, *self.offsets})

    def load_newest(
        self, at_most: int, *, now_ms: int, event: EventCallback = ignore_event
    ) -> tuple[int, dict[int, ProducerState]] | None:
        """(offset, producers) of the newest valid snapshot not above `at_most`; removes invalid ones."""
        for offset in [known for known in reversed(self.offsets) if known <= at_most]:
            try:
                states = decode(self._disk.read_bytes(self._path(offset)), offset=offset, now_ms=now_ms)
            except CorruptSnapshot as error:
                event("producer_snapshot_unusable", file=self._path(offset), reason=str(error))
                self._remove([offset])
                continue
            return offset, {state.producer_id: state for state in states}
        return None

    def secure(self, offset: int, *, now_ms: int) -> bool:
        """Make the snapshot of this offset durable. False if there is none or it is invalid."""
        if not self.has(offset):
            return False
        data = self._disk.read_bytes(self._path(offset))
        try:
            decode(data, offset=offset, now_ms=now_ms)
        except CorruptSnapshot:
            return False
        self._disk.write_atomically(self._path(offset), data)
        return True

    def aborted(self, offset: int) -> tuple[int, int] | None:
        """Number and CRC-32C of the transaction index entries of the segment that ends at `offset`; None if unknown."""
        if not self.has(offset):
            return None
        file = self._disk.open(self._path(offset))
        try:
            (count,) = _COUNT.unpack(file.pread(_COUNT.size, _HEAD.size))
            if count < 0:
                return None
            at = _HEAD.size + _COUNT.size + count * _ENTRY.size
            magic, end_offset, _, aborted_count, checksum = _TRAILER.unpack(file.pread(_TRAILER.size, at))
        except LayoutError:
            return None
        finally:
            file.close()
        return (aborted_count, checksum) if magic == TRAILER_MAGIC and end_offset == offset else None

    def remove_above(self, offset: int) -> None:
        self._remove([known for known in self.offsets if known > offset])

    def removal_above(self, offset: int, per_step: int) -> Generator[None]:
        """As `remove_above`, with a step after each `per_step` snapshots but the last ones."""
        while len(above := [known for known in self.offsets if known > offset]) > per_step:
            self._remove(above[-per_step:])
            yield
        self._remove(above)

    def remove_all(self) -> None:
        self._remove(self.offsets)

    def remove_below(self, offset: int) -> None:
        self._remove([known for known in self.offsets if known < offset])

    def _remove(self, offsets: Sequence[int]) -> None:
        gone = set(offsets)
        for offset in offsets:
            self._disk.remove(self._path(offset))
        self.offsets = [known for known in self.offsets if known not in gone]

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT)}"
