"""The timeline of a partition: its transactions, the fences of their producers, and the open ones that hold it back.

A page that has the timeline up to an offset asks for what is new with `since`: the first offset of its oldest open
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from semel import Admin, TopicPartition
from semel.admin import EARLIEST, LATEST, TransactionDescription
from semel.diagnose import FENCES_KEPT, NO_LEDGER, describe_known, open_transactions
from semel.errors import UnsupportedVersionError

from semel_console.facts.cluster import judged
from semel_console.facts.timeline_columns import OUTCOMES, scan_columns
from semel_console.query import QueryParameters

OFFSETS_DEFAULT, OFFSETS_MAX = 50_000, 1_000_000
DESCRIBED_MAX = 200
OLDER_FENCES = (
    f"There may be older fences: a coordinator keeps the last {FENCES_KEPT} of an id, and has that many of {{ids}}. An "
    "aborted transaction without a fence here may have had one."
)
_Producers = tuple[dict[int, str], list[dict[str, Any]], str | None, list[str]]
NO_LISTING = "Not known: these brokers do not list transactional ids (before KIP-664, Apache Kafka 3.0)."


async def timeline(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """The timeline of `topic` and `partition`: the last `last` offsets, or those from `since` on."""
    at = query.place
    low, (stable, high) = await asyncio.gather(_first_offset(admin, at), _last_offsets(admin, at))
    start = high - query.number("last", OFFSETS_DEFAULT, most=OFFSETS_MAX)
    start = min(high, max(low, query.number("since", max(0, start)), high - OFFSETS_MAX))
    found = await scan_columns(admin, at, start, high)
    names, fences, no_ledger, full = await _producers(admin, found.index_of)
    return {
        "now_ms": now_ms,
        "topic": at.topic,
        "partition": at.partition,
        "log_start_offset": low,
        "from_offset": start,
        "last_stable_offset": stable,
        "high_watermark": high,
        "producers": [{"producer_id": each, "transactional_id": names.get(each)} for each in found.index_of],
        "outcomes": [each.value for each in OUTCOMES],
        "columns": found.columns,
        "fences": fences,
        "no_ledger": no_ledger,
        "full_ledgers": OLDER_FENCES.format(ids=", ".join(full)) if full else None,
        "holders": await _holders(admin, at, now_ms) if stable < high else [],
    }


async def _producers(admin: Admin, ids: Collection[int]) -> _Producers:
    """The transactional ids of producer ids, the fences of these producers, the oldest first, why fences are not known,
    and the transactional ids whose ledgers are full.

    The ledgers also name the producer ids that a transactional id had before.
    """
    try:
        listed = await admin.list_transactions()
    except UnsupportedVersionError:  # before KIP-664
        return {}, [], NO_LISTING, []
    names = {row.producer_id: row.transactional_id for row in listed if row.producer_id in ids}
    if len(listed) <= DESCRIBED_MAX:
        wanted = [row.transactional_id for row in listed]
    else:
        wanted = list(names.values())[:DESCRIBED_MAX]
    fences: list[dict[str, Any]] = []
    no_ledger, full = None, []
    for found in await describe_known(admin, wanted):
        if not found.has_ledger:
            no_ledger = NO_LEDGER.format(broker=found.coordinator)
        if len(found.fences) >= FENCES_KEPT and (found.producer_id in ids or _fenced_among(found, ids)):
            full.append(found.transactional_id)
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
    return names, sorted(fences, key=lambda fence: int(fence["at_ms"])), no_ledger, full


def _fenced_among(found: TransactionDescription, ids: Collection[int]) -> bool:
    return any(fence.old_producer_id in ids or fence.new_producer_id in ids for fence in found.fences)


async def _holders(admin: Admin, at: TopicPartition, now_ms: int) -> list[dict[str, Any]]:
    """The open transactions of the partition, with sentences."""
    try:
        return judged(await open_transactions(admin, [at]), now_ms)
    except UnsupportedVersionError:
        return []


async def ends(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """The offsets at the ends of `topic` and `partition`, which say whether a timeline has news."""
    at = query.place
    stable, high = await _last_offsets(admin, at)
    return {"last_stable_offset": stable, "high_watermark": high}


async def _first_offset(admin: Admin, at: TopicPartition) -> int:
    return (await admin.list_offsets({at: EARLIEST}))[at].offset


async def _last_offsets(admin: Admin, at: TopicPartition) -> tuple[int, int]:
    """Last stable offset and high watermark. The first is asked for first: it is never above the other."""
    stable = (await admin.list_offsets({at: LATEST}, read_committed=True))[at].offset
    high = (await admin.list_offsets({at: LATEST}))[at].offset
    return min(stable, high), high
