"""PURE: what Spark tells of a streaming query after each batch, in the figures that a person wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One batch.

    `rows_out`: -1 where the sink does not say. `lag`: rows that were there and are not read yet, -1 where the source
    does not say. `position`: of all partitions together, how far it has read. `watermark`: ISO 8601, ""
    without event times.
    """

    query: str
    batch: int
    rows_in: int
    rows_out: int
    rows_per_s: float
    lag: int
    position: int
    batch_ms: int
    watermark: str
    late_rows: int
    """Dropped for being behind the watermark."""
    did_run: bool = True
    """False: Spark looked and found nothing to do; such a reading has the number of the batch to come."""


class Totals(msgspec.Struct):
    """Of one query since its start. Readings may come twice; each batch counts once."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    last: Reading | None = None

    def take(self, reading: Reading) -> bool:
        """False for one that was taken already, and for a trigger that found nothing to do."""
        if not reading.did_run or (self.last is not None and reading.batch <= self.last.batch):
            return False
        self.batches += 1
        self.rows_in += reading.rows_in
        self.rows_out += max(0, reading.rows_out)
        self.late_rows += reading.late_rows
        self.last = reading
        return True


def reading(name: str, progress: Mapping[str, Any]) -> Reading:
    """What `StreamingQueryProgress.json` says."""
    sources = progress.get("sources") or []
    lags = [_behind(each.get("latestOffset"), each.get("endOffset")) for each in sources]
    return Reading(
        query=name,
        batch=int(progress.get("batchId", -1)),
        rows_in=int(progress.get("numInputRows", 0)),
        rows_out=int((progress.get("sink") or {}).get("numOutputRows", -1)),
        rows_per_s=float(progress.get("processedRowsPerSecond") or 0.0),
        lag=-1 if not lags or min(lags) < 0 else sum(lags),
        position=sum(number for each in sources for _, number in _numbers(each.get("endOffset"))),
        batch_ms=int((progress.get("durationMs") or {}).get("triggerExecution", 0)),
        watermark=(progress.get("eventTime") or {}).get("watermark", ""),
        late_rows=sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in progress.get("stateOperators") or []),
        did_run="addBatch" in (progress.get("durationMs") or {}),
    )


def _behind(latest: object, end: object) -> int:
    """How much all the numbers of one offset are ahead of those of the other; -1 when there is nothing to compare."""
    there, read = dict(_numbers(latest)), dict(_numbers(end))
    return sum(max(0, there[at] - read.get(at, 0)) for at in there) if there and read else -1


def _numbers(offset: object, at: str = "") -> Iterable[tuple[str, int]]:
    if isinstance(offset, str):
        try:
            offset = msgspec.json.decode(offset)
        except msgspec.DecodeError:
            return
    if isinstance(offset, Mapping):
        for key, value in offset.items():
            yield from _numbers(value, f"{at}/{key}")
    elif isinstance(offset, int) and not isinstance(offset, bool):
        yield at, offset
