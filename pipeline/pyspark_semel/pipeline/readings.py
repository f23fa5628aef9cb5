"""PURE: the figures of one batch of a streaming query, from Spark's progress report, and their totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one batch.

    `rows_out`: -1 if the sink does not report it. `lag`: available rows that are not read yet, -1 if the source does
    not report it. `position`: the sum of the offsets of all partitions. `watermark`: ISO 8601, "" without event times.
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
    """Rows that were dropped because they are behind the watermark."""
    did_run: bool = True
    """False: the trigger found no new rows. The reading then has the number of the next batch."""


class Totals(msgspec.Struct):
    """The totals of one query since its start. Spark may report a batch twice; each batch counts once."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    last: Reading | None = None

    def add(self, reading: Reading) -> bool:
        """Return False for a batch that is already counted, and for a trigger without new rows."""
        if not reading.did_run or (self.last is not None and reading.batch <= self.last.batch):
            return False
        self.batches += 1
        self.rows_in += reading.rows_in
        self.rows_out += max(0, reading.rows_out)
        self.late_rows += reading.late_rows
        self.last = reading
        return True


def reading(name: str, progress: Mapping[str, Any]) -> Reading:
    """Convert `StreamingQueryProgress.json` to a reading."""
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
    """Sum how far the numbers of `latest` are ahead of those of `end`; -1 if they cannot be compared."""
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
