"""The timeline of a partition: its transactions in columns, the fences of their producers, and who holds it back.

Columns keep 100,000 transactions small and quick to draw. A page that has the timeline up to an offset asks for what is
new with `since`: the first offset of its oldest open transaction.
"""

from __future__ import annotations

from typing import Any

import msgspec
from semel import Admin, TopicPartition
from semel._consume.log_scan import scan
from semel.admin import EARLIEST, LATEST
from semel.cli.shared.open_transactions import by_transaction, describe_known, open_transactions
from semel.cli.txn.timeline_spans import Outcome, Span, Spans
from semel.errors import UnsupportedVersionError

from semel_console.facts.cluster import holder_facts
from semel_console.query import Query

OFFSETS_DEFAULT, OFFSETS_MAX = 50_000, 1_000_000
DESCRIBED_MAX = 200
OUTCOMES = (Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN, Outcome.PLAIN)


class Columns(msgspec.Struct):
    """One entry a transaction, in order of first offsets; a run outside of transactions is an entry, too.

    producer: index in the list of producers. outcome: index in OUTCOMES. marker: -1 without one. Times are in ms, -1
    without one.
    """

    producer: list[int] = []
    epoch: list[int] = []
    outcome: list[int] = []
    first: list[int] = []
    last: list[int] = []
    marker: list[int] = []
    records: list[int] = []
    bytes: list[int] = []
    began: list[int] = []
    ended: list[int] = []


async def timeline(admin: Admin, query: Query, now_ms: int) -> dict[str, Any]:
    """The timeline of `topic` and `partition`: the last `last` offsets, or those from `since` on."""
    at = query.place
    low = (await admin.list_offsets({at: EARLIEST}))[at].offset
    stable = (await admin.list_offsets({at: LATEST}, read_committed=True))[at].offset
    high = (await admin.list_offsets({at: LATEST}))[at].offset
    start = high - query.number("last", OFFSETS_DEFAULT, most=OFFSETS_MAX)
    start = min(high, max(low, query.number("since", max(0, start)), high - OFFSETS_MAX))
    spans = Spans()
    async for batch in scan(admin._calls, at, start, high):
        spans.add(batch)
    found = spans.result()
    ids = list(dict.fromkeys(span.producer_id for span in found))
    names, fences = await _producers(admin, ids)
    return {
        "now_ms": now_ms,
        "topic": at.topic,
        "partition": at.partition,
        "log_start_offset": low,
        "from_offset": start,
        "last_stable_offset": min(stable, high),
        "high_watermark": high,
        "producers": [{"producer_id": each, "transactional_id": names.get(each)} for each in ids],
        "outcomes": [each.value for each in OUTCOMES],
        "columns": columns_of(found, {each: index for index, each in enumerate(ids)}),
        "fences": fences,
        "holders": await _holders(admin, at, now_ms) if stable < high else [],
    }


def columns_of(spans: list[Span], index_of: dict[int, int]) -> Columns:
    """PURE. Spans as columns. Each run of records outside of transactions is an entry of its own."""
    made = Columns()
    for span in spans:
        last_record = span.pieces[-1][1] if span.pieces else span.first_offset
        pieces = span.pieces if span.outcome is Outcome.PLAIN else [[span.first_offset, last_record]]
        for first, last in pieces:
            made.producer.append(index_of[span.producer_id])
            made.epoch.append(span.producer_epoch)
            made.outcome.append(OUTCOMES.index(span.outcome))
            made.first.append(first)
            made.last.append(last)
            made.marker.append(-1 if span.marker_offset is None else span.marker_offset)
            made.records.append(last - first + 1 if span.outcome is Outcome.PLAIN else span.record_count)
            made.bytes.append(-1 if span.outcome is Outcome.PLAIN else span.size_bytes)
            made.began.append(span.first_timestamp)
            made.ended.append(span.marker_timestamp)
    return made


async def _producers(admin: Admin, ids: list[int]) -> tuple[dict[int, str], list[dict[str, Any]]]:
    """The transactional ids of producer ids, and the fences of these producers, the oldest first.

    The ledgers also name the producer ids that a transactional id had before.
    """
    try:
        listed = await admin.list_transactions()
    except UnsupportedVersionError:  # before KIP-664
        return {}, []
    names = {row.producer_id: row.transactional_id for row in listed if row.producer_id in ids}
    if len(listed) <= DESCRIBED_MAX:
        wanted = [row.transactional_id for row in listed]
    else:
        wanted = list(names.values())[:DESCRIBED_MAX]
    fences = []
    for found in await describe_known(admin, wanted):
        for fence in found.fences:
            if fence.old_producer_id not in ids and fence.new_producer_id not in ids:
                continue
            names.setdefault(fence.old_producer_id, found.transactional_id)
            fences.append(
                {
                    "transactional_id": found.transactional_id,
                    "producer_id": fence.old_producer_id,
                    "epoch": fence.old_epoch,
                    "new_epoch": fence.new_epoch,
                    "at_ms": fence.at_ms,
                    "reason": fence.reason,
                    "by": fence.by or None,
                    "text": fence.text,
                }
            )
    return names, sorted(fences, key=lambda fence: int(fence["at_ms"]))


async def _holders(admin: Admin, at: TopicPartition, now_ms: int) -> list[dict[str, Any]]:
    """The open transactions of the partition, with sentences."""
    try:
        return [holder_facts(each, now_ms) for each in by_transaction(await open_transactions(admin, [at]))]
    except UnsupportedVersionError:
        return []


async def ends(admin: Admin, query: Query, now_ms: int) -> dict[str, Any]:
    """The offsets at the ends of `topic` and `partition`, which say whether a timeline has news."""
    at = query.place
    stable = (await admin.list_offsets({at: LATEST}, read_committed=True))[at].offset
    high = (await admin.list_offsets({at: LATEST}))[at].offset
    return {"last_stable_offset": min(stable, high), "high_watermark": high}
