"""Plans the batches of a streaming query: the end offsets of the next batch, and the ranges of its tasks.

A plan lives on the driver, one for each run of a query. The state that must survive a restart is in the offsets, which
Spark stores in its checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from semel.batch_reader import BatchReader
from semel.errors import KafkaTimeoutError
from semel.structs import TopicPartition

from pyspark_semel.source.offsets import BEGIN, INITIAL, OffsetRange, Offsets, as_json, from_json, limited, ranges
from pyspark_semel.source.options import SourceOptions, Where
from pyspark_semel.source.positions import offsets_at, partitions_of, required_partitions_of
from pyspark_semel.source.read import UNSELECTED_ADVICE, DataLossError

log = logging.getLogger(__name__)

IDLE_MS = 100
"""Spark asks for new offsets about every 10 ms; a reply without new offsets waits this long."""
IDLE_POLL_MS = 20
"""The interval of requests to the cluster in this time,"""
IDLE_RATIO = 4
"""or a longer one: this multiple of the request's duration, so that thousands of partitions do not cause constant load.
"""
PARTITIONS_AGE_MS = 1_000
"""The interval at which partitions are listed again, to find new partitions and deleted topics."""
ASK_MS = 3_000
"""The longest wait for end offsets before partitions are listed again: a topic may have been deleted."""
LOSS_MS = 5_000
"""Partitions or records count as lost only after this time: a new leader or broker may not have all metadata yet."""
RETRY_MS = 200


class StreamPlan:
    """Answers the requests of Spark to a streaming source, with offsets as JSON."""

    def __init__(self, reader: BatchReader, options: SourceOptions) -> None:
        self._reader, self._options = reader, options
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None
        self._partitions: list[TopicPartition] = []
        self._listed_at: float | None = None
        self._latest: Offsets = {}

    async def initial(self) -> dict[str, Any]:
        """Return the start offsets of a query without a checkpoint. Raises OptionError."""
        if self._initial is None:
            options = self._options
            partitions = await required_partitions_of(self._reader, options.topics)
            found = await offsets_at(
                self._reader, options.start(Where.LATEST), partitions, latest_if_no_time=options.latest_if_no_time
            )
            self._initial = as_json(found) | {INITIAL: True}
        return self._initial

    async def pin(self) -> None:
        """Limit all later batches to the records that exist now (Trigger.AvailableNow)."""
        self._target = await self._reader.latest(await self._listed())

    async def latest(self, start: dict[str, Any], count: int | None) -> dict[str, Any]:
        """Return the end of the next batch, of about `count` offsets at most; `start` itself if there are no new
        records.

        Raises DataLossError if partitions or offsets of `start` are gone, unless failOnDataLoss is false.
        """
        begin, loop = from_json(start), asyncio.get_running_loop()
        waited_ms = 0.0
        while True:
            asked_at = loop.time()
            end = await self._ends(begin)
            pause_ms = min(max(IDLE_POLL_MS, (loop.time() - asked_at) * 1000 * IDLE_RATIO), IDLE_MS)
            if count is not None:
                end = limited(begin | await self._begins(end, begin), end, count)
            if INITIAL in start:
                return as_json(end) | {BEGIN: as_json(begin)}
            if end != begin:
                return as_json(end)
            if self._target is not None or waited_ms >= IDLE_MS:
                return start
            await asyncio.sleep(pause_ms / 1000)
            waited_ms += pause_ms

    async def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """Return the ranges of the tasks of a batch; a repeated batch gets the same ranges."""
        to = from_json(end)
        begin = from_json(end[BEGIN] if INITIAL in start and BEGIN in end else start)
        return list(ranges(begin | await self._begins(to, begin), to, self._options.splitting))

    def known_latest(self) -> dict[str, Any] | None:
        """Return the end offsets of the last request, without the limit of a batch."""
        return as_json(self._latest) if self._latest else None

    async def _listed(self) -> list[TopicPartition]:
        """Return all partitions to read; the list may be PARTITIONS_AGE_MS old."""
        now = asyncio.get_running_loop().time()
        if self._listed_at is None or (now - self._listed_at) * 1000 >= PARTITIONS_AGE_MS:
            self._partitions = await partitions_of(self._reader, self._options.topics)
            self._listed_at = now
        return self._partitions

    async def _ends(self, begin: Mapping[TopicPartition, int]) -> Offsets:
        """Return the end offset of each partition, not above the target."""
        loop = asyncio.get_running_loop()
        lost_since: float | None = None
        while True:
            self._latest = await self._asked_latest()
            gone = [at for at in begin if at not in self._latest]
            behind = [at for at in begin if at not in gone and self._latest[at] < begin[at]]
            if not gone and not behind:
                return self._within_target(begin)
            lost_since = loop.time() if lost_since is None else lost_since
            if (loop.time() - lost_since) * 1000 >= LOSS_MS:
                self._lost(begin, gone, behind)
                return self._within_target({at: begin[at] for at in begin if at not in gone and at not in behind})
            await asyncio.sleep(RETRY_MS / 1000)
            self._listed_at = None

    async def _asked_latest(self) -> Offsets:
        deadline_ms = self._options.client.values.get("default_api_timeout_ms", 60_000)
        while True:
            try:
                return await self._reader.latest(await self._listed(), timeout_ms=min(ASK_MS, deadline_ms))
            except KafkaTimeoutError:
                deadline_ms -= ASK_MS
                if deadline_ms <= 0:
                    raise
                self._listed_at = None

    def _within_target(self, begin: Mapping[TopicPartition, int]) -> Offsets:
        """Return the latest offsets, at most the target, but not below the start of the batch."""
        if self._target is None:
            return dict(self._latest)
        return {
            at: max(min(offset, self._target.get(at, 0)), begin.get(at, 0))
            for at, offset in self._latest.items()
            if at in self._target or at in begin
        }

    def _lost(
        self, begin: Mapping[TopicPartition, int], gone: Iterable[TopicPartition], behind: Iterable[TopicPartition]
    ) -> None:
        unselected = [at for at in gone if not self._options.topics.selects(at)]
        if unselected:
            names = ", ".join(f"{at.topic}-{at.partition}" for at in unselected)
            said = f"the checkpoint has {names}, and the options of the stream do not select this any more"
            if self._options.fail_on_data_loss:
                raise DataLossError(said, UNSELECTED_ADVICE)
            log.warning("partitions_left_out: %s", said)
        words = [f"{at.topic}-{at.partition} no longer exists" for at in gone if at not in unselected]
        words += [
            f"{at.topic}-{at.partition} ends at offset {self._latest[at]} and was read up to {begin[at]}"
            for at in behind
        ]
        if words and self._options.fail_on_data_loss:
            raise DataLossError("; ".join(words))
        if words:
            log.warning("records_possibly_missed: %s", "; ".join(words))

    async def _begins(self, end: Mapping[TopicPartition, int], begin: Mapping[TopicPartition, int]) -> Offsets:
        """Return the start offsets of partitions that are new since the last batch."""
        new = [at for at in end if at not in begin]
        found = await self._reader.earliest(new) if new else {}
        late = [f"{at.topic}-{at.partition} begins at {offset}" for at, offset in found.items() if offset > 0]
        if late:
            words = f"new partitions do not begin at offset 0, earlier records may have been missed: {'; '.join(late)}"
            if self._options.fail_on_data_loss:
                raise DataLossError(words)
            log.warning("%s", words)
        return found
