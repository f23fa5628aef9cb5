"""The BatchReader: reads the stored record batches of an offset range, without decoding the records.

    async with BatchReader(bootstrap_servers="...") as reader:
        async for fetched in reader.read(TopicPartition("flights", 0), start, end):
            for header, at in fetched.batches:
                ... fetched.data[at : at + header.size] ...

There are no groups and no positions. The batches come out as stored, compressed ones compressed. `to_arrow` and
`arrow_batches` read topics as tables, for pandas, polars and DuckDB (docs/dataframes.md).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from semel_protocol.errors import KafkaError as WireError

from semel._arrow import ArrowSchema, require_arrow
from semel._config.arguments import check_times, checked
from semel._config.client import ClientConfig, takes_settings
from semel._config.consumer import (
    CheckCrcs,
    ClientRack,
    ConsumerConfig,
    FetchMaxBytes,
    FetchMaxWaitMs,
    FetchMinBytes,
    IsolationLevel,
)
from semel._config.settings import Meaning, Positive
from semel._consume.range_fetch import CommittedBatches, RangeFetch
from semel._group.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Offsets
from semel._net.cluster import Cluster
from semel._net.lifecycle import ConnectionParts, Lifecycle
from semel.errors import CorruptRecordException, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from semel.structs import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

    from semel._arrow.columns import RecordColumns
else:  # `checked` reads annotations
    RecordBatch = Table = RecordColumns = Any

log = logging.getLogger(__name__)
EPOCH, MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
Place = int | datetime | Mapping[TopicPartition, int]
"""Where to start or to end in partitions: an offset, a time, or an offset for each partition."""

__all__ = ["BatchReader", "BatchReaderConfig", "Bounds", "CommittedBatches"]


class BatchReaderConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `BatchReader`. Settings of the consumer have the consumer's names."""

    isolation_level: IsolationLevel = "read_committed"
    check_crcs: CheckCrcs = True
    fetch_min_bytes: FetchMinBytes = 1
    fetch_max_bytes: FetchMaxBytes = 52_428_800
    fetch_max_wait_ms: FetchMaxWaitMs = 500
    max_partition_fetch_bytes: Annotated[
        Positive,
        Meaning("Larger than the consumer's: one partition is read at a time, and fetched data is handed out at once."),
    ] = 4_194_304
    client_rack: ClientRack = ""
    default_api_timeout_ms: Annotated[
        Positive, Meaning("How long a call may take, retries included, and how long `read` may go without progress.")
    ] = 60_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.as_consumer()

    def as_consumer(self) -> ConsumerConfig:
        """The same settings, checked as a consumer's. Raises KafkaConfigurationError."""
        return ConsumerConfig(**msgspec.structs.asdict(self))


class Bounds(msgspec.Struct, frozen=True):
    """The first offset of a partition, and the offset after the last readable record.

    Under read_committed `latest` is the last stable offset: open transactions hold it back.
    """

    earliest: int
    latest: int


class ReaderParts(ConnectionParts):
    """The connections and the fetches in progress."""

    def __init__(self, cluster: Cluster, fetches: dict[RangeFetch, None]) -> None:
        super().__init__(cluster)
        self._fetches = fetches

    def _cut(self) -> list[asyncio.Task[Any]]:
        for ranged in self._fetches:
            ranged.close()
        return [*(ranged.fetching for ranged in self._fetches if ranged.fetching is not None), *super()._cut()]


class BatchReader:
    """Reads offset ranges of partitions, several at the same time if needed.

    async with BatchReader(bootstrap_servers="localhost:9092") as reader:
        async for fetched in reader.read(TopicPartition("flights", 0), start=0, end=1_000):
            print(sum(header.record_count for header, at in fetched.batches))

    `help(BatchReader.__init__)` lists the settings.
    """

    @takes_settings(BatchReaderConfig)
    def __init__(self, config: BatchReaderConfig) -> None:
        self._config = config.as_consumer()
        self._cluster = Cluster(config, auto_create_topics=False)
        self._offsets = Offsets(self._cluster, self._config)
        self._fetches: dict[RangeFetch, None] = {}
        self._life = Lifecycle(self, "reader", config.client_id, parts=ReaderParts(self._cluster, self._fetches))

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaConnectionError when no bootstrap server answers."""
        await self._life.start()

    async def stop(self) -> None:
        """Close every connection. Calling it again has no effect. Calls after it, and iterations of `read`, raise
        IllegalStateError.
        """
        await self._life.stop()

    async def __aenter__(self) -> BatchReader:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @checked
    async def read(self, partition: TopicPartition, start: int, end: int) -> AsyncIterator[CommittedBatches]:
        """The batches with records from offset `start` up to, not including, `end`, in order. Fetches one response
        ahead.

        The first and last batch may hold records outside of the range. Control batches are left out, under
        read_committed also batches of aborted transactions. A range with nothing else yields nothing. The iteration
        ends when all offsets below `end` are covered.

        Raises OffsetOutOfRangeError when the next records are deleted; KafkaTimeoutError after default_api_timeout_ms
        without progress, for example while `end` cannot be read; CorruptRecordException, RecordTooLargeError,
        UnknownTopicOrPartitionError.
        """
        self._life.check_running()
        ranged = RangeFetch(self._cluster, self._config, self._offsets, partition, start, end)
        self._fetches[ranged] = None
        try:
            while (fetched := await ranged.next()) is not None:
                if fetched.batches:
                    yield fetched
        finally:
            ranged.close()
            self._fetches.pop(ranged, None)

    @checked
    async def to_arrow(
        self,
        *sources: str | TopicPartition,
        start: Place | None = None,
        end: Place | None = None,
        key_deserializer: Callable[[bytes | None], Any] | None = None,
        value_deserializer: Callable[[bytes | None], Any] | None = None,
        value_schema: ArrowSchema | None = None,
    ) -> Table:
        """The records of topics or partitions as one `pyarrow.Table`, as `arrow_batches` reads them.

        The values of a deserializer that names no type may differ from batch to batch: the column has all fields that
        were found, null where a value has none. Needs memory for the whole table.
        """
        columns = self._columns("to_arrow", key_deserializer, value_deserializer, value_schema, fixed=False)
        return columns.table([batch async for batch in self._arrow(columns, sources, start, end)])

    @checked
    def arrow_batches(
        self,
        *sources: str | TopicPartition,
        start: Place | None = None,
        end: Place | None = None,
        key_deserializer: Callable[[bytes | None], Any] | None = None,
        value_deserializer: Callable[[bytes | None], Any] | None = None,
        value_schema: ArrowSchema | None = None,
    ) -> AsyncIterator[RecordBatch]:
        """The records as batches, a `pyarrow.RecordBatch` for each fetch, partition by partition, in offset order.

        The columns have the names of `ConsumerRecord`: topic, partition, offset, timestamp (ms, UTC), timestamp_type,
        key, value, headers. Ends at the ends that the partitions have when it begins, and never waits for later
        records. The memory is bounded by `max_partition_fetch_bytes`.

        sources: topics and partitions. start, end: an offset, a time (with its time zone), or offsets by partition;
        None is the beginning, or the end. The record at `end` is left out.
        key_deserializer, value_deserializer: as of `Consumer`. Structs, dataclasses and dicts make a struct column.
        None: bytes.
        value_schema: a `pyarrow.Schema` (the fields of the values) or `pyarrow.DataType`. None takes the type that the
        deserializer names, or else that of the first batch.

        Raises UnknownTopicOrPartitionError for a topic that does not exist, RecordDeserializationError,
        ModuleNotFoundError without the extra `semel[arrow]`, TypeError and ValueError for values that do not fit the
        column, and as `read`.
        """
        columns = self._columns("arrow_batches", key_deserializer, value_deserializer, value_schema, fixed=True)
        return self._arrow(columns, sources, start, end)

    def _columns(self, call: str, *given: Any, fixed: bool) -> RecordColumns:
        self._life.check_running()
        require_arrow(f"BatchReader.{call}")
        from semel._arrow.columns import RecordColumns

        return RecordColumns(*given, fixed=fixed)

    async def _arrow(
        self, columns: RecordColumns, sources: tuple[str | TopicPartition, ...], start: Place | None, end: Place | None
    ) -> AsyncIterator[RecordBatch]:
        from semel._arrow.decode import Slice, arrow_batches

        bounds = await self.bounds(await self._sources(sources))
        earliest = {at: bound.earliest for at, bound in bounds.items()}
        latest = {at: bound.latest for at, bound in bounds.items()}
        starts, ends = (
            await self._places("start", start, earliest, latest),
            await self._places("end", end, latest, latest),
        )
        for partition, first in starts.items():
            last = min(ends[partition], latest[partition])
            async for at, fetched in self._existing(partition, first, last, may_be_deleted=start is None):
                try:
                    found = list(arrow_batches(fetched.data, fetched.batches, Slice(*partition, at, last)))
                except WireError as e:
                    raise CorruptRecordException(f"{partition.topic}-{partition.partition}: {e.message}") from e
                for each in found:
                    yield await columns.of_fetched(each)

    async def _existing(
        self, partition: TopicPartition, start: int, end: int, *, may_be_deleted: bool
    ) -> AsyncIterator[tuple[int, CommittedBatches]]:
        """As `read`, each with the first wanted offset. may_be_deleted: leave out records that retention removes
        meanwhile.
        """
        at = start
        while at < end:
            try:
                async for fetched in self.read(partition, at, end):
                    yield at, fetched
                    at = fetched.next_offset
            except OffsetOutOfRangeError as e:
                if not may_be_deleted:
                    raise
                log.warning("records were deleted while they were read; continuing with the next ones: %s", e.message)
                at = max(at, (await self.earliest([partition]))[partition])
            else:
                return

    async def _sources(self, sources: tuple[str | TopicPartition, ...]) -> list[TopicPartition]:
        """The partitions of these topics, and these partitions, in order."""
        if not sources:
            raise TypeError("name a topic or a partition, as in to_arrow('orders')")
        topics = list(dict.fromkeys(each if isinstance(each, str) else each.topic for each in sources))
        found = await self.partitions_of(topics)
        wanted: dict[TopicPartition, None] = {}
        for source in sources:
            topic = source if isinstance(source, str) else source.topic
            there = [each for each in found if each.topic == topic]
            if not there:
                raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}: create it, or check its name")
            if isinstance(source, TopicPartition) and source not in there:
                raise UnknownTopicOrPartitionError(
                    f"there is no partition {source.partition} of {topic!r}: it has {len(there)}"
                )
            wanted |= dict.fromkeys([source] if isinstance(source, TopicPartition) else there)
        return list(wanted)

    async def _places(
        self, name: str, place: Place | None, default: dict[TopicPartition, int], latest: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offset of each partition that `start` or `end` means. Raises ValueError."""
        if place is None:
            return default
        if isinstance(place, datetime):
            if place.tzinfo is None:
                raise ValueError(f"{name}={place!r} has no time zone: give it one, as in tzinfo=datetime.UTC")
            found = await self.offsets_for_times(dict.fromkeys(default, -((EPOCH - place) // MILLISECOND)))
            return {at: latest[at] if row is None else row.offset for at, row in found.items()}
        given = place if isinstance(place, Mapping) else dict.fromkeys(default, place)
        for at, offset in given.items():
            if at not in default:
                raise ValueError(f"{name} has an offset for {at}, which is not read: name it, or its topic")
            if offset < 0:
                raise ValueError(f"{name}={offset}: offsets start at 0")
        return {**default, **given}

    @checked
    async def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The bounds of partitions now. Raises KafkaTimeoutError, TopicAuthorizationFailedError."""
        wanted = list(partitions)
        earliest = await self.earliest(wanted)
        latest = await self.latest(wanted)
        return {at: Bounds(earliest[at], latest[at]) for at in wanted}

    @checked
    async def earliest(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Raises as `bounds`."""
        return await self._list(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    @checked
    async def latest(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last readable record of each partition. Raises as `bounds`."""
        return await self._list(partitions, LATEST_TIMESTAMP, timeout_ms)

    @checked
    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms since the epoch); None where there is none. Raises as `bounds`."""
        self._life.check_running()
        check_times(timestamps)
        found = await self._offsets.list(timestamps, self._config.default_api_timeout_ms)
        return {at: None if row[0] < 0 else OffsetAndTimestamp(*row) for at, row in found.items()}

    @checked
    async def partitions_of(self, topics: Iterable[str] | re.Pattern[str]) -> list[TopicPartition]:
        """All partitions of these topics, or of the topics whose whole name matches the pattern. Requests metadata.

        A topic that does not exist has none. Internal topics match no pattern. Raises KafkaTimeoutError.
        """
        self._life.check_running()
        if isinstance(topics, re.Pattern):
            self._cluster.want_all()
            known = (await self._cluster.refresh()).topics
            names = sorted(name for name in known if topics.fullmatch(name) and not known[name].is_internal)
        else:
            names = list(dict.fromkeys(topics))
            self._cluster.want(names)
            known = (await self._cluster.refresh()).topics
        found = [known[name] for name in names if name in known]
        return [TopicPartition(topic.name, row.partition) for topic in found for row in topic.partitions]

    async def _list(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self._life.check_running()
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        found = await self._offsets.list(dict.fromkeys(partitions, timestamp), timeout_ms)
        return {at: offset for at, (offset, _) in found.items()}
