"""PURE. The fetched bytes of one partition. They are decoded when the application takes records.

Batches are held as the broker sent them, compressed, so `fetch_buffer_bytes` counts the real memory. One batch at a
time is decoded. Control batches, records of aborted transactions (read_committed) and records below the position are
left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Literal

import msgspec
from semel_protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, crc_ok, read_header
from semel_protocol.compression import BYTES_MAX
from semel_protocol.errors import KafkaError as WireError
from semel_protocol.errors import PortableError
from semel_protocol.records import Columns, decode_columns

from semel._config.client import Deserializer
from semel._subscription.epoch_history import ReadEpochs
from semel.errors import CorruptRecordException, RecordDeserializationError
from semel.serializers import NotReady
from semel.structs import ConsumerRecord, TopicPartition

Record = ConsumerRecord[Any, Any]


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for decoding records."""

    check_crcs: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    batch_bytes_max: int = BYTES_MAX
    """The largest decompressed size of one batch."""


class Chunk(msgspec.Struct):
    """Batches of one fetch response, from byte `at` on.

    aborted: (first offset, producer id) of aborted transactions, ascending; None under read_uncommitted.
    open: the producers whose aborted transaction covers the current batch.
    """

    data: bytes
    at: int = 0
    aborted: deque[tuple[int, int]] | None = None
    open: dict[int, None] = {}

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction. Call it once for each batch, in order."""
        if not self.aborted and not self.open:
            return False  # nothing is aborted from here on
        while self.aborted and self.aborted[0][0] <= header.last_offset:
            self.open[self.aborted.popleft()[1]] = None
        if header.is_control:
            # The marker ends the transaction. A producer in `open` has aborted it: a commit removes nothing here.
            self.open.pop(header.producer_id, None)
            return False
        return header.is_transactional and header.producer_id in self.open


class ByteCount(msgspec.Struct):
    """The total of several buffers, kept up to date by each of them."""

    size_bytes: int = 0


class DecodedCount(msgspec.Struct):
    """Records that were decoded and not dropped again, and the bytes of the batches that held them, as sent."""

    records: int = 0
    size_bytes: int = 0


class DeserializationError(PortableError):
    """A deserializer failed at `offset`. rows: the records of the batch before it. error: for the application, or
    NotReady.
    """

    def __init__(self, rows: list[Record], offset: int, error: Exception) -> None:
        super().__init__(rows, offset, error)
        self.rows, self.offset, self.error = rows, offset, error


class FetchBuffer:
    """Decoded records that are not taken yet (`records[at:]`), then the chunks that are not decoded yet.

    next_offset: where decoding continues. fetch_offset: where the next fetch starts, None without a position.
    """

    __slots__ = (
        "_chunks",
        "_decoded",
        "_tally",
        "_topic_partition",
        "at",
        "epochs",
        "fetch_offset",
        "next_offset",
        "records",
        "size_bytes"
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, decoded: DecodedCount | None = None) -> None:
        self._topic_partition = topic_partition
        self._decoded = decoded or DecodedCount()
        self._tally = ByteCount()
        self._chunks: deque[Chunk] = deque()
        self.records: list[Record] = []
        self.at = 0
        self.next_offset: int | None = None
        self.fetch_offset: int | None = None
        self.size_bytes = 0
        self.epochs = ReadEpochs()

    def restart(self, offset: int | None) -> None:
        """Drop everything. The next data added starts at `offset`."""
        self._decoded.records -= self.left
        self._chunks.clear()
        self.records, self.at = [], 0
        self.next_offset = self.fetch_offset = offset
        self.epochs.truncate(offset)
        self._grow(-self.size_bytes)

    @property
    def left(self) -> int:
        """Decoded records that are not taken yet."""
        return len(self.records) - self.at

    @property
    def is_empty(self) -> bool:
        return self.at >= len(self.records) and not self._chunks

    def add(self, data: bytes, aborted: list[tuple[int, int]] | None = None) -> bool:
        """Add the data of a fetch from `fetch_offset`. A partial batch at the end is left for the next fetch.

        aborted: (first offset, producer id) under read_committed. False when the data has no complete batch.
        Raises CorruptRecordException when the bytes are not batches.
        """
        end = 0
        next_offset = self.fetch_offset
        assert next_offset is not None
        try:
            while len(data) - end >= HEADER_BYTES:
                header = read_header(data, end)
                if end + header.size > len(data):
                    break
                end += header.size
                if header.next_offset > next_offset:
                    if header.partition_leader_epoch != self.epochs.last:
                        self.epochs.read(header.partition_leader_epoch, next_offset)
                    next_offset = header.next_offset
        except CorruptBatch as e:
            raise self._corrupt(e.message) from e
        if not end:
            return False
        whole = data if end == len(data) else data[:end]
        self._chunks.append(Chunk(whole, aborted=None if aborted is None else deque(sorted(aborted))))
        self._grow(end)
        self.fetch_offset = self.epochs.end = next_offset
        return True

    def fill(self, decoding: Decoding, count: int) -> None:
        """Decode whole batches until `count` records are ready or nothing is left.

        Raises CorruptRecordException at a damaged batch, RecordDeserializationError at a record that a deserializer
        refuses, and NotReady. The earlier records are handed out first. Each further call raises again, because the
        position stays before it.
        """
        if len(self.records) - self.at >= count:
            return
        del self.records[: self.at]
        self.at = 0
        while self._chunks and len(self.records) < count:
            try:
                self._decode_next(decoding)
            except WireError as e:
                if self.records:
                    return
                raise self._unreadable(e.message) from e
            except DeserializationError as e:
                self.records += e.rows
                self._decoded.records += len(e.rows)
                self.next_offset = e.offset
                if self.records:
                    return
                raise e.error from e.error.__cause__

    def take(self, count: int) -> list[Record]:
        """Take up to `count` decoded records."""
        records, at = self.records, self.at
        if at == 0 and len(records) <= count:
            self.records = []
            return records
        self.at = min(at + count, len(records))
        return records[at : self.at]

    def _decode_next(self, decoding: Decoding) -> None:
        chunk = self._chunks[0]
        header = read_header(chunk.data, chunk.at)
        end = chunk.at + header.size
        assert self.next_offset is not None
        view = memoryview(chunk.data)[chunk.at : end]
        if decoding.check_crcs and not crc_ok(view, header):  # of skipped batches too: the header may be damaged
            raise CorruptBatch("its CRC does not match")
        skipped = chunk.is_aborted(header) or header.is_control
        if header.next_offset > self.next_offset:
            if not skipped:
                columns = decode_columns(view, header, bytes_max=decoding.batch_bytes_max)
                rows = self._rows(columns, header, decoding)
                self.records += rows
                self._decoded.records += len(rows)
                self._decoded.size_bytes += header.size
            self.next_offset = header.next_offset
        chunk.at = end
        self._grow(-header.size)
        if end >= len(chunk.data):
            self._chunks.popleft()

    def count_into(self, tally: ByteCount) -> None:
        """Count this buffer's bytes in `tally` from now on."""
        if tally is not self._tally:
            self._tally.size_bytes -= self.size_bytes
            self._tally = tally
            tally.size_bytes += self.size_bytes

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._tally.size_bytes += size_bytes

    def _rows(self, columns: Columns, header: BatchHeader, decoding: Decoding) -> list[Record]:
        """One record for each row at or above the position, made in one pass over the columns."""
        assert self.next_offset is not None
        offsets, timestamps, keys, values, headers = (
            columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers
        )  # fmt: skip
        if header.base_offset < self.next_offset:
            first = bisect_left(offsets, self.next_offset)
            offsets, timestamps, headers = offsets[first:], timestamps[first:], headers[first:]
            keys, values = keys[first:], values[first:]
        rows = map(
            ConsumerRecord,
            repeat(self._topic_partition.topic),
            repeat(self._topic_partition.partition),
            offsets,
            timestamps,
            repeat(1 if header.log_append_time else 0),
            _deserialized(keys, decoding.key_deserializer),
            _deserialized(values, decoding.value_deserializer),
            repeat(None),
            _sizes(keys),
            _sizes(values),
            headers,
        )
        if decoding.key_deserializer is None and decoding.value_deserializer is None:
            return list(rows)
        made: list[Record] = []
        try:
            made.extend(rows)
        except NotReady as e:
            raise DeserializationError(made, offsets[len(made)], e) from e
        except Exception as e:
            at = len(made)
            key_size, value_size = _sizes([keys[at], values[at]])
            raw = ConsumerRecord(
                self._topic_partition.topic, self._topic_partition.partition, offsets[at], timestamps[at],
                1 if header.log_append_time else 0, keys[at], values[at], None, key_size, value_size, headers[at],
            )  # fmt: skip
            field: Literal["key", "value"] = "key" if _refuses(decoding.key_deserializer, keys[at]) else "value"
            raise DeserializationError(made, offsets[at], RecordDeserializationError(field, raw, e)) from e
        return made

    def _unreadable(self, message: str) -> CorruptRecordException:
        """The exception for a batch that cannot be read. It names the offset of the next batch, or else the end in
        its header.
        """
        chunk = self._chunks[0]
        header = read_header(chunk.data, chunk.at)
        behind, end = header.next_offset, chunk.at + header.size
        if len(chunk.data) - end >= HEADER_BYTES:
            behind = read_header(chunk.data, end).base_offset
        elif len(self._chunks) > 1:
            behind = read_header(self._chunks[1].data, self._chunks[1].at).base_offset
        topic, partition = self._topic_partition
        return CorruptRecordException(
            f"{topic}-{partition} at offset {self.next_offset}: the batch at offset {header.base_offset} cannot be "
            f"read: {message}. seek({behind}) continues after it"
        )

    def _corrupt(self, message: str) -> CorruptRecordException:
        topic, partition = self._topic_partition
        return CorruptRecordException(
            f"{topic}-{partition} at offset {self.next_offset}: {message}. seek() past it to continue without it"
        )


def _deserialized(column: Sequence[bytes | None], deserializer: Deserializer | None) -> Iterable[Any]:
    return column if deserializer is None else map(deserializer, column)


def _refuses(deserializer: Deserializer | None, data: bytes | None) -> bool:
    try:
        if deserializer is not None:
            deserializer(data)
    except Exception:
        return True
    return False


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return [-1 if data is None else len(data) for data in column]
