"""The BatchReader: reads the stored record batches of an offset range, without decoding the records.

    async with BatchReader(bootstrap_servers="...") as reader:
        async for fetched in reader.read(TopicPartition("flights", 0), start, end):
            for header, at in fetched.batches:
                ... fetched.data[at : at + header.size] ...

There are no groups and no positions. The batches come out as stored, compressed ones compressed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Annotated, Any

import msgspec

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
from semel.structs import OffsetAndTimestamp, TopicPartition

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
