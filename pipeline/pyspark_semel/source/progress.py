"""Computes the lag of a query from its progress report.

Spark gives Python sources no metrics of their own. Every progress report of a query has `latestOffset`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark_semel.source.offsets import Offsets, from_json


def lag(source: Any) -> Offsets | None:
    """Return the lag of each partition in offsets when the batch was planned; None if the report does not contain it.

    source: one of the `sources` of a query's progress (`query.lastProgress`), as an object or as JSON. Control records
    and gaps in the offsets are included, so that the number of unread records may be lower.
    """
    latest, end = _offsets(source, "latestOffset"), _offsets(source, "endOffset")
    if latest is None or end is None:
        return None
    return {at: max(offset - end.get(at, 0), 0) for at, offset in latest.items()}


def _offsets(source: Any, name: str) -> Offsets | None:
    found = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:  # "null", or no batch yet
            return None
    return from_json(found) if isinstance(found, Mapping) else None
