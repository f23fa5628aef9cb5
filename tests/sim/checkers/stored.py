"""wrong-txn, sequence-gap, stuck-LSO: the batches in the logs and the decisions of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Iterator

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import ClientTransaction, HistoryIndex, TransactionOutcome
from sim.events import Place
from sim.final import LogBatch, PartitionEnd

SEQUENCE_MASK = 0x7FFFFFFF
WANTED = {TransactionOutcome.COMMITTED: "commit", TransactionOutcome.ABORTED: "abort"}
MARKER_OF = {"PrepareCommit": "commit", "PrepareAbort": "abort"}


def wrong_txn(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A marker ended records of another transaction, or contradicts the decision."""
    found = []
    for place, end in facts.final.partitions.items():
        if end.batches is not None:
            found += list(_wrong_markers(facts, place, end, end.batches))
            found += list(_undecided_markers(facts, place, end.batches))
    if found:
        yield Anomaly("wrong-txn", few(found))


def _wrong_markers(facts: HistoryIndex, place: Place, end: PartitionEnd, batches: list[LogBatch]) -> Iterator[str]:
    """Between two markers of a producer are records of one transaction, and the marker has its outcome."""
    rows = {row.offset: row.value for row in end.uncommitted}
    under: dict[int, dict[int, ClientTransaction]] = {}
    epoch: dict[int, int] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        at = f"{place[0]}-{place[1]}@{batch.base_offset}"
        if not batch.marker:
            if batch.is_transactional:
                epoch[batch.producer_id] = batch.producer_epoch
                for offset in range(batch.base_offset, batch.last_offset + 1):
                    txn = facts.txn_of(rows.get(offset))
                    if txn is not None:
                        under.setdefault(batch.producer_id, {})[txn.began.op] = txn
            continue
        ended = under.pop(batch.producer_id, {})
        if len(ended) > 1:
            yield f"the {batch.marker} marker at {at} ends {few(ended.values())} together"
        for txn in ended.values():
            if WANTED.get(txn.outcome, batch.marker) != batch.marker:
                yield f"the {batch.marker} marker at {at} ends {txn}, which was {txn.outcome.value}"
        if ended and batch.producer_epoch < epoch[batch.producer_id]:
            yield f"the marker at {at} has epoch {batch.producer_epoch}, its records {epoch[batch.producer_id]}"


def _undecided_markers(facts: HistoryIndex, place: Place, batches: list[LogBatch]) -> Iterator[str]:
    """Each marker has a decision of the coordinator for this partition. Each complete decision has its marker."""
    if facts.final.decisions is None or facts.cleanup_of(place[0]):
        return
    decided = {
        (decision.producer_id, decision.producer_epoch, MARKER_OF[decision.status]): decision
        for decision in facts.final.decisions
        if decision.status in MARKER_OF and place in decision.places
    }
    written = {(b.producer_id, b.producer_epoch, b.marker): b.base_offset for b in batches if b.marker}
    for key, offset in written.items():
        if key not in decided:
            yield (
                f"no decision for the {key[2]} marker of producer {key[0]} epoch {key[1]} at "
                f"{place[0]}-{place[1]}@{offset}"
            )
    complete = {
        (d.producer_id, d.producer_epoch, "commit" if d.status == "CompleteCommit" else "abort")
        for d in facts.final.decisions
        if d.status.startswith("Complete")
    }
    end = facts.final.partitions[place]
    for key, decision in decided.items():
        if key in complete and key not in written and end.start_offset == 0:
            yield (
                f"{place[0]}-{place[1]} has no {key[2]} marker of {decision.transactional_id} at epoch {key[1]}, which "
                "is complete"
            )


def sequence_gap(facts: HistoryIndex) -> Iterator[Anomaly]:
    """The sequences of one producer and epoch in a log have a gap, or go back.

    A log may lose the unacknowledged first batches of a producer, and the producer state with them. Then the next batch
    may have any sequence.
    """
    found = []
    doubtful = {write.place: None for write in facts.writes.values() if not write.is_acknowledged}
    for place, end in facts.final.partitions.items():
        if facts.cleanup_of(place[0]) == "compact":
            continue
        last: dict[tuple[int, int], int] = {}
        known: dict[int, None] = {}
        for batch in end.batches or ():
            if batch.producer_id < 0 or batch.marker or batch.base_sequence < 0:
                continue
            key = batch.producer_id, batch.producer_epoch
            due = (last[key] + 1) & SEQUENCE_MASK if key in last else None
            is_whole = end.start_offset == 0 and not facts.may_be_gone(place, 0)
            if due is None and is_whole and (place not in doubtful or batch.producer_id in known):
                due = 0
            if due is not None and batch.base_sequence != due:
                found.append(
                    f"{place[0]}-{place[1]}@{batch.base_offset}: producer {key[0]} epoch {key[1]} goes on with "
                    f"sequence {batch.base_sequence}, not {due}"
                )
            last[key] = batch.last_sequence
            known[batch.producer_id] = None
    if found:
        yield Anomaly("sequence-gap", few(found))


def stuck_lso(facts: HistoryIndex) -> Iterator[Anomaly]:
    """The last stable offset is below the high watermark at the end, when every transaction has timed out."""
    found = []
    for place, end in facts.final.partitions.items():
        if end.last_stable_offset < end.high_watermark:
            found.append(
                f"{place[0]}-{place[1]}: last stable offset {end.last_stable_offset}, high watermark "
                f"{end.high_watermark}{_holders(end)}"
            )
    if found:
        yield Anomaly("stuck-LSO", few(found))


def _holders(end: PartitionEnd) -> str:
    first: dict[int, int] = {}
    for batch in end.batches or ():
        if batch.marker:
            first.pop(batch.producer_id, None)
        elif batch.is_transactional:
            first.setdefault(batch.producer_id, batch.base_offset)
    return "".join(f", producer {producer} since @{offset}" for producer, offset in first.items())
