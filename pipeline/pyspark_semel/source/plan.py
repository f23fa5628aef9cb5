"""How a streaming query moves on: from the offsets where one batch ends to those where the next one does.

Lives on the driver, one for each run of a query. Nothing that matters is kept here: what must survive a restart is in
the offsets themselves, which Spark writes into its checkpoint.
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
from pyspark_semel.source.places import offsets_at, partitions_of, required_partitions_of
from pyspark_semel.source.read import DataLossError

log = logging.getLogger(__name__)

IDLE_MS = 100
"""Spark asks about every 10 ms whether there is something new; each answer that nothing is takes this long."""
IDLE_POLL_MS = 20
"""How often the cluster is asked meanwhile,"""
IDLE_RATIO = 4
"""or less often: so many times as long as it took to answer. Thousands of partitions are not asked for all the time."""
PARTITIONS_AGE_MS = 1_000
"""Partitions are listed anew this often: new ones are seen, and topics that are deleted."""
ASK_MS = 3_000
"""The longest wait for the ends of partitions before these are listed anew: one may have been deleted."""
LOSS_MS = 5_000
"""Something must be missing for so long to be lost: a leader or a broker that is new may not know it all yet."""
RETRY_MS = 200


class StreamPlan:
    """Answers what Spark asks of a streaming source, in terms of offsets as JSON."""

    def __init__(self, reader: BatchReader, options: SourceOptions) -> None:
        self._reader, self._options = reader, options
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None
        self._partitions: list[TopicPartition] = []
        self._listed_at: float | None = None
        self._latest: Offsets = {}

    async def initial(self) -> dict[str, Any]:
        """Where a query begins that has no checkpoint. Raises OptionError."""
        if self._initial is None:
            options = self._options
            partitions = await required_partitions_of(self._reader, options.topics)
            found = await offsets_at(
                self._reader, options.start(Where.LATEST), partitions, latest_if_no_time=options.latest_if_no_time
            )
            self._initial = as_json(found) | {INITIAL: True}
        return self._initial

    async def pin(self) -> None:
        """From now on nothing beyond what can be read at this moment (Trigger.AvailableNow)."""
        self._target = await self._reader.latest(await self._listed())

    async def latest(self, start: dict[str, Any], count: int | None) -> dict[str, Any]:
        """Where the next batch ends, of about `count` offsets at most; `start` itself when there is nothing.

        Raises DataLossError when partitions or offsets are gone that `start` names, unless failOnDataLoss is false.
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
        """The tasks of a batch; the same ones whenever it is done again."""
        to = from_json(end)
        begin = from_json(end[BEGIN] if INITIAL in start and BEGIN in end else start)
        return list(ranges(begin | await self._begins(to, begin), to, self._options.splitting))

    def known_latest(self) -> dict[str, Any] | None:
        """The ends of the partitions when they were asked for last, whatever the limit on a batch."""
        return as_json(self._latest) if self._latest else None

    # Inside

    async def _listed(self) -> list[TopicPartition]:
        """All partitions to read, as of a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._listed_at is None or (now - self._listed_at) * 1000 >= PARTITIONS_AGE_MS:
            self._partitions = await partitions_of(self._reader, self._options.topics)
            self._listed_at = now
        return self._partitions

    async def _ends(self, begin: Mapping[TopicPartition, int]) -> Offsets:
        """How far each partition can be read now, and no further than the target."""
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
        """The latest offsets, cut at the target, but never below where a batch begins."""
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
        words = [f"{at.topic}-{at.partition} is no longer there, or no longer read" for at in gone]
        words += [
            f"{at.topic}-{at.partition} ends at offset {self._latest[at]} and was read up to {begin[at]}"
            for at in behind
        ]
        if self._options.fail_on_data_loss:
            raise DataLossError("; ".join(words))
        log.warning("some records may have been missed: %s", "; ".join(words))

    async def _begins(self, end: Mapping[TopicPartition, int], begin: Mapping[TopicPartition, int]) -> Offsets:
        """Where partitions begin that were not there when the last batch ended."""
        new = [at for at in end if at not in begin]
        found = await self._reader.earliest(new) if new else {}
        late = [f"{at.topic}-{at.partition} begins at {offset}" for at, offset in found.items() if offset > 0]
        if late:
            words = f"new partitions do not begin at offset 0, records before may have been missed: {'; '.join(late)}"
            if self._options.fail_on_data_loss:
                raise DataLossError(words)
            log.warning("%s", words)
        return found
