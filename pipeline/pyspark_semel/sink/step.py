"""PURE: is this batch to be written, or was it committed before? What the sink remembers decides.

The token of a commit is the query's id and the batch's number. Spark runs a batch again after a crash under the same
number, with the same rows; a query that lost its checkpoint has another id, and counts from 0 again.
"""

from __future__ import annotations

from semel import GroupStep

from pyspark_semel.sink.options import REPLACES

NOTHING = "nothing"
"""What a query may replace that has a checkpoint, where the sink remembers no batch."""


class SinkRefusedError(ValueError):
    """Rows would be lost or doubled in silence; the message says why, and what to do."""


def token(query_id: str, batch_id: int) -> str:
    """Of the commit of this batch."""
    return f"{query_id}:{batch_id}"


def is_to_be_written(step: GroupStep, query_id: str, batch_id: int, replaces: str | None) -> bool:
    """False for the batch that was committed last. Raises SinkRefusedError."""
    if step.decided_token is None:
        if batch_id and replaces != NOTHING:
            raise SinkRefusedError(_no_memory(step, query_id, batch_id))
        return True
    last_query, last_batch = _read(step.decided_token)
    if query_id != last_query:
        if replaces != last_query:
            raise SinkRefusedError(_other_query(step, query_id, last_query, last_batch))
        return True
    if batch_id < last_batch and replaces != query_id:
        raise SinkRefusedError(_set_back(step, query_id, batch_id, last_batch))
    return batch_id != last_batch


def _read(decided: str) -> tuple[str, int]:
    query_id, _, batch_id = decided.rpartition(":")
    return (query_id, int(batch_id)) if batch_id.isascii() and batch_id.isdigit() else (decided, -1)


def _no_memory(step: GroupStep, query_id: str, batch_id: int) -> str:
    return (
        f"sink {step.group!r} remembers no batch, and query {query_id} goes on with batch {batch_id}: it cannot be "
        "told whether that batch is written already. Is this the name that the query has always written under, and "
        "the cluster? (What a sink remembers is forgotten when nothing was written for "
        "transaction.group.expiration.ms, and foreachBatch has to write batch 0, too.) If the batch is to be written, "
        f"as when the query wrote at least once or elsewhere before: set {REPLACES}={NOTHING}"
    )


def _other_query(step: GroupStep, query_id: str, last_query: str, last_batch: int) -> str:
    return (
        f"sink {step.group!r} belongs to query {last_query} (its batch {last_batch} was committed last), and this is "
        f"query {query_id}. A query has a new id when its checkpoint was deleted or another location was given: it "
        "counts batches from 0 and may write again what is written already. Give the old checkpoint back; or, if this "
        f"is another query, another sink id; or, if it is to take over from here, set {REPLACES}={last_query}"
    )


def _set_back(step: GroupStep, query_id: str, batch_id: int, last_batch: int) -> str:
    return (
        f"sink {step.group!r} has batch {last_batch} of query {query_id}, and this is batch {batch_id} again: its "
        "checkpoint was set back, or two drivers run it and this is the older one. Stop that, or, if what came after "
        f"batch {batch_id} is to be written once more, set {REPLACES}={query_id}"
    )
