"""aborted-read (G1a), torn-txn, precommitted-read: the records that readers of committed data may and must see."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex, TransactionOutcome


def aborted_read(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A reader of committed data saw a record of an aborted transaction."""
    found: dict[str, None] = {}
    for place, offset, value, is_committed in facts.reads:
        txn = facts.txn_of(value) if is_committed else None
        if txn is not None and txn.outcome is TransactionOutcome.ABORTED:
            found[f"{value!r} at {place[0]}-{place[1]}@{offset} of {txn}"] = None
    if found:
        yield Anomaly("aborted-read", few(found))


def torn_txn(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A record of a committed transaction is not visible at the end, whether others are or not. Or the commit was
    acknowledged although a record of the transaction had failed."""
    visible = {row.value for end in facts.final.partitions.values() for row in end.committed}
    found = []
    for txn in facts.txns.values():
        if txn.outcome is not TransactionOutcome.COMMITTED:
            continue
        if txn.ended_ms < inf and (failed := [str(write) for write in txn.writes if write.has_failed]):
            found.append(f"{txn} was committed although records of it had failed: {few(failed)}")
        hidden, seen = [], 0
        for write in txn.writes:
            value = write.sent.value
            if write.has_failed or value is None or facts.cleanup_of(write.sent.topic) == "compact":
                continue
            if value in visible:
                seen += 1
            elif not any(
                facts.may_be_gone((write.sent.topic, partition), write.offset)
                for partition in ([write.partition] if write.partition >= 0 else facts.partitions_of(write.sent.topic))
            ):
                hidden.append(value)
        if hidden:
            found.append(f"of {txn} {seen} records are visible, and {len(hidden)} are not: {few(hidden)}")
    if found:
        yield Anomaly("torn-txn", few(found))


def precommitted_read(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A reader of committed data saw a record before the commit of its transaction was requested."""
    found = []
    for poll in facts.polls:
        if not facts.is_read_committed(poll.client):
            continue
        for offset, value in zip(poll.offsets, poll.values, strict=True):
            txn = facts.txn_of(value)
            if txn is not None and txn.outcome is not TransactionOutcome.ABORTED and poll.at_ms < txn.committing_ms:
                found.append(
                    f"{value!r} at {poll.topic}-{poll.partition}@{offset} was read by {poll.client} at "
                    f"{poll.at_ms:.0f} ms, {txn} was committed from {txn.committing_ms:.0f} ms on"
                )
    if found:
        yield Anomaly("precommitted-read", few(found))
