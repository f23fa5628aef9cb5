"""A broker without its counters, to measure what they cost: `python -m bench.uncounted`, used as `semel serve`."""

from __future__ import annotations

from typing import Any

from semel_broker.__main__ import serve
from semel_broker.net import dispatch
from semel_broker.txn.shard import TransactionShard
from semel_storage.histogram import Histogram
from semel_storage.producers.unreadable import Unreadable


def nothing(*arguments: Any, **fields: Any) -> None:
    """Counts nothing."""


def uncount() -> None:
    """Replace what is more than an addition."""
    for owner, names in ((Histogram, ["observe"]), (Unreadable, ["data", "marker"]), (TransactionShard, ["_count"])):
        for name in names:
            setattr(owner, name, nothing)
    vars(dispatch)["count_errors"] = nothing


if __name__ == "__main__":
    uncount()
    serve()
