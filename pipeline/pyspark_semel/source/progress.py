"""How far behind a query is, from its progress.

Python sources have no metrics of their own in Spark; what they have is `latestOffset`, in every progress of a query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark_semel.source.offsets import Offsets, from_json


def lag(source: Any) -> Offsets | None:
    """Offsets that each partition was behind when the batch was planned; None when the progress does not tell.

    source: one of the `sources` of a query's progress (`query.lastProgress`), as an object or as JSON. Control records
    and gaps count too, so that what is left to read may be a little less.
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
        except ValueError:  # "null", or nothing yet
            return None
    return from_json(found) if isinstance(found, Mapping) else None
