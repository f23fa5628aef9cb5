"""What can be read of one partition's log: records, places by timestamp, and what is known of producers."""

from semel_protocol.errors import ErrorCode, KafkaError

from semel_storage.producers.producer_table import ProducerTable
from semel_storage.producers.producers import ProducerState
from semel_storage.producers.transactions import AbortedTransaction, decode, pairs_of
from semel_storage.segments import lookup
from semel_storage.segments.segment import Segment
from semel_storage.segments.segments import Segments


class LogReader:
    """The half of `Log` that changes nothing."""

    def __init__(self, segments: Segments, start_offset: int, end_offset: int, producers: ProducerTable) -> None:
        self.start_offset: int = start_offset
        self.end_offset: int = end_offset
        self._segments = segments
        self._producers = producers

    @property
    def segments(self) -> list[Segment]:
        """Ascending; the last one is the active one. For looking at, not for changing."""
        return self._segments.all

    @property
    def active(self) -> Segment:
        return self._segments.all[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def read(self, offset: int, *, up_to: int, bytes_max: int, at_least_one: bool = True) -> bytes:
        """Stored bytes of whole batches from the one holding `offset`, none reaching `up_to` or beyond it.

        At most `bytes_max` bytes, but with `at_least_one` the first batch always whole. The first batch may start
        below `offset`. Empty when there is nothing in between. Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        return self._read(offset, up_to, bytes_max, at_least_one)[0]

    def read_committed(
        self, offset: int, *, up_to: int, bytes_max: int, at_least_one: bool = True
    ) -> tuple[bytes, list[bytes]]:
        """`read`, and the aborted transactions that have records among what it returns: by first offset, each as a
        Fetch answer has it (`transactions.PAIR`)."""
        data, next_offset = self._read(offset, up_to, bytes_max, at_least_one)
        return data, pairs_of(self._segments.aborted_entries(offset, next_offset)) if data else []

    def _read(self, offset: int, up_to: int, bytes_max: int, at_least_one: bool) -> tuple[bytes, int]:
        """The bytes, and an offset behind all of theirs."""
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within [{self.start_offset}, {self.end_offset}]; reset it to either end",
            )
        assert up_to <= self.end_offset, f"reading up to {up_to}, the log ends at {self.end_offset}"
        if offset >= up_to:
            return b"", offset
        return self._segments.read(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int, *, up_to: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `up_to` with timestamp >= `timestamp_ms`; None: no such."""
        return lookup.offset_for_timestamp(self.segments, timestamp_ms, start=self.start_offset, up_to=up_to)

    def max_timestamp(self, *, up_to: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `up_to` with the largest timestamp; None when there is none."""
        return lookup.max_timestamp(self.segments, start=self.start_offset, up_to=up_to)

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of the batches from the one holding `start` to the end of the one before that holding `end`."""
        return self._segments.bytes_before(end) - self._segments.bytes_before(start)

    # Producers and transactions

    def active_producers(self) -> list[ProducerState]:
        """Producers with state, by id (DescribeProducers)."""
        return self._producers.all()

    def producer(self, producer_id: int) -> ProducerState | None:
        """What is known of one producer: epoch, last sequence, `txn_first_offset`, `coordinator_epoch`."""
        return self._producers.get(producer_id)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the earliest transaction began that is open, or whose marker is not below `high_watermark`.

        None when there is no such transaction. The high watermark never goes back, but by truncation.
        """
        return self._producers.transactions.first_unstable_offset(high_watermark)

    def unstable_offsets(self) -> list[int]:
        """Where the transactions began among which `first_unstable_offset` names the earliest, ascending."""
        return self._producers.transactions.unstable_offsets

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that end at or after `start` and begin below `end`, in the order of their markers."""
        return decode(self._segments.aborted_entries(start, end))
