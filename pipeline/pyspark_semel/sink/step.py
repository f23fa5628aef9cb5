"""PURE: decides from the last commit of the sink whether a batch is written, skipped or refused.

The token of a commit is the query id and the batch number. After a crash Spark repeats a batch with the same number and
the same rows. A query that lost its checkpoint has a new id and starts again at batch 0.
"""

from __future__ import annotations

from semel import GroupStep

from pyspark_semel.sink.options import REPLACES

NOTHING = "nothing"
"""The value of semel.sink.replaces for a query with a checkpoint, if the sink remembers no batch."""


class SinkRefusedError(ValueError):
    """Rows would be lost or duplicated silently; the message gives the reason and the change."""


def token(query_id: str, batch_id: int) -> str:
    """Return the token of the commit of this batch."""
    return f"{query_id}:{batch_id}"


def is_to_be_written(step: GroupStep, query_id: str, batch_id: int, replaces: str | None) -> bool:
    """Return False for the batch that was committed last. Raises SinkRefusedError."""
    if step.decided_token is None:
        if batch_id and replaces != NOTHING:
            raise SinkRefusedError(_no_batch_known(step, query_id, batch_id))
        return True
    last_query, last_batch = _read(step.decided_token)
    if query_id != last_query:
        if replaces != last_query:
            raise SinkRefusedError(_other_query(step, query_id, last_query, last_batch))
        return True
    if batch_id < last_batch and replaces != query_id:
        raise SinkRefusedError(_older_batch(step, query_id, batch_id, last_batch))
    return batch_id != last_batch


def _read(decided: str) -> tuple[str, int]:
    query_id, _, batch_id = decided.rpartition(":")
    return (query_id, int(batch_id)) if batch_id.isascii() and batch_id.isdigit() else (decided, -1)


def _no_batch_known(step: GroupStep, query_id: str, batch_id: int) -> str:
    return (
        f"sink {step.group!r} remembers no batch, and query {query_id} goes on with batch {batch_id}: it is "
        "unknown whether that batch is already written. Is this the name that the query has always written under, and "
        "the cluster? (The broker forgets the last batch of a sink that wrote nothing for "
        "transaction.group.expiration.ms, and foreachBatch must write batch 0, too.) To write the batch, for example "
        f"because the query wrote at least once or elsewhere before: set {REPLACES}={NOTHING}"
    )


def _other_query(step: GroupStep, query_id: str, last_query: str, last_batch: int) -> str:
    return (
        f"sink {step.group!r} belongs to query {last_query} (its batch {last_batch} was committed last), and this is "
        f"query {query_id}. A query has a new id when its checkpoint was deleted or another location was given: it "
        "counts batches from 0 and may write again what is written already. Restore the old checkpoint; or, if this "
        f"is another query, give it another sink id; or, to take over from the old query, set {REPLACES}={last_query}"
    )


def _older_batch(step: GroupStep, query_id: str, batch_id: int, last_batch: int) -> str:
    return (
        f"sink {step.group!r} has batch {last_batch} of query {query_id}, and this is batch {batch_id} again: its "
        "checkpoint was set back, or two drivers run it and this is the older one. Stop this driver, or, to write the "
        f"batches after {batch_id} again, set {REPLACES}={query_id}"
    )
