"""fence-violation: once InitProducerId is answered, no request of an older instance is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex, TransactionOutcome
from sim.checkers.steps import stale_drivers
from sim.events import Initialized


def fence_violation(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A request that an older instance sent after a newer one was initialized was acknowledged; or its batch is stored
    behind a batch of a newer epoch; or a driver committed a step after a newer step had begun."""
    found = [*_acknowledged(facts), *_stored(facts), *stale_drivers(facts)]
    if found:
        yield Anomaly("fence-violation", few(found))


def is_newer(one: Initialized, other: Initialized) -> bool:
    """Whether `one` has certainly replaced `other`: by id and epoch; by times without overlap if these are unknown."""
    if one.producer_id >= 0 and other.producer_id >= 0:
        return (one.producer_id, one.producer_epoch) > (other.producer_id, other.producer_epoch)
    return one.since_ms > other.at_ms


def fenced_from(facts: HistoryIndex) -> dict[tuple[str, str], float]:
    """By client and transactional id: the time from which no request of the client may succeed; inf: never fenced."""
    fenced: dict[tuple[str, str], float] = {}
    latest: dict[tuple[str, str], Initialized] = {}
    for event in facts.initialized:
        latest[event.client, event.transactional_id] = event
    for (client, transactional_id), mine in latest.items():
        fenced[client, transactional_id] = min(
            (
                theirs.at_ms
                for theirs in facts.initialized
                if theirs.transactional_id == transactional_id and theirs.client != client and is_newer(theirs, mine)
            ),
            default=inf,
        )
    return fenced


def _acknowledged(facts: HistoryIndex) -> Iterator[str]:
    fenced = fenced_from(facts)
    for txn in facts.txns.values():
        since = fenced.get((txn.began.client, txn.began.transactional_id), inf)
        if since == inf:
            continue
        for write in txn.writes:
            if write.sent.at_ms > since and write.is_acknowledged:
                yield f"{write}, sent at {write.sent.at_ms:.0f} ms, was acknowledged; fenced at {since:.0f} ms"
        for asked in txn.offsets:
            if asked.at_ms > since and facts.offset_commits[asked.op].ended_ms < inf:
                yield f"offsets of {asked.group}, sent at {asked.at_ms:.0f} ms in {txn}, fenced at {since:.0f} ms"
        is_empty = not txn.writes and not txn.offsets
        if (
            since < txn.committing_ms < inf
            and txn.ended_ms < inf
            and txn.outcome is TransactionOutcome.COMMITTED
            and not is_empty
        ):
            yield f"{txn} was committed at {txn.committing_ms:.0f} ms, fenced at {since:.0f} ms"


def _stored(facts: HistoryIndex) -> Iterator[str]:
    for place, end in facts.final.partitions.items():
        epochs: dict[int, int] = {}
        for batch in end.batches or ():
            if batch.producer_id < 0:
                continue
            newest = epochs.get(batch.producer_id, -1)
            if batch.producer_epoch < newest:
                yield (
                    f"{place[0]}-{place[1]}@{batch.base_offset}: epoch {batch.producer_epoch} of producer "
                    f"{batch.producer_id} lies behind epoch {newest}"
                )
            epochs[batch.producer_id] = max(newest, batch.producer_epoch)
