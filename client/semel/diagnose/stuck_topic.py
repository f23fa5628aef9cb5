"""Explains why read_committed consumers do not reach the end of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from semel._texts import compact, plural
from semel.admin import Admin
from semel.diagnose.holders import (
    OpenTransaction,
    by_transaction,
    describe_transaction,
    open_transaction_facts,
    open_transactions,
)
from semel.diagnose.lines import DiagnosisLine, captioned
from semel.diagnose.partitions import PartitionEnds, ends_of, partitions_of
from semel.structs import TopicPartition

BEHIND_SHOWN = 5


class TopicFindings(msgspec.Struct, frozen=True):
    """The facts about a topic whose readers may be held back.

    ends: of each partition. open_transactions: in the partitions that are held back, sorted by partition and first
    offset.
    """

    ends: Mapping[TopicPartition, PartitionEnds]
    open_transactions: Sequence[OpenTransaction]

    @property
    def held(self) -> dict[TopicPartition, PartitionEnds]:
        """The partitions whose last stable offset is below their high watermark."""
        return {at: each for at, each in self.ends.items() if each.held_back}


async def diagnose_topic(admin: Admin, name: str) -> TopicFindings:
    """Why read_committed consumers do not reach the end of `TOPIC` or `TOPIC:PARTITION`.

    Raises PartitionNameError, NoSuchPartitionError, and as `open_transactions`.
    """
    ends = await ends_of(admin, list(await partitions_of(admin, [name])))
    held = [at for at, each in ends.items() if each.held_back]
    return TopicFindings(ends, await open_transactions(admin, held) if held else [])


def topic_findings_facts(found: TopicFindings) -> dict[str, Any]:
    """PURE. The findings as plain types, as `semel topic stuck --json` prints them."""
    return {
        "stuck": bool(found.held),
        "partitions_checked": len(found.ends),
        "held_back": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "last_stable_offset": each.last_stable,
                "high_watermark": each.high_watermark,
                "offsets_held_back": each.held_back,
            }
            for at, each in found.held.items()
        ],
        "transactions": [open_transaction_facts(holders) for holders in by_transaction(found.open_transactions)],
    }


def topic_lines(found: TopicFindings, now_ms: int) -> list[DiagnosisLine]:
    """PURE. The findings in words: a paragraph for each transaction that holds partitions back."""
    return held_back_lines(found.held, found.open_transactions, now_ms)


def held_back_lines(
    held: Mapping[TopicPartition, PartitionEnds], found: Sequence[OpenTransaction], now_ms: int
) -> list[DiagnosisLine]:
    """PURE. One paragraph for each transaction that is the first open one of a partition, and one for partitions whose
    transaction has ended. found: the open transactions, sorted by partition and first offset.
    """
    first: dict[TopicPartition, OpenTransaction] = {}
    for each in found:
        first.setdefault(each.partition, each)
    lines = []
    for holders in by_transaction(first.values()):
        places = [each.partition for each in holders]
        later = [each for each in found if each.partition in places and each is not first[each.partition]]
        lines += [DiagnosisLine(), *_headline({at: held[at] for at in places})]
        lines += [*captioned(describe_transaction(holders, now_ms)), *_behind(later)]
    if ended := {at: each for at, each in held.items() if at not in first}:
        lines += [DiagnosisLine(), *_headline(ended)]
        lines.append(DiagnosisLine("  The transaction that held it back has just ended: run the command again."))
    return lines


def _headline(held: Mapping[TopicPartition, PartitionEnds]) -> list[DiagnosisLine]:
    if len(held) == 1:
        ((at, ends),) = held.items()
        offsets = f"last stable offset {ends.last_stable:,}, high watermark {ends.high_watermark:,}"
        return [
            DiagnosisLine(
                f"  {offsets}: {plural(ends.held_back, 'offset')} held back", heading=f"{at.topic}-{at.partition}"
            )
        ]
    total = sum(each.held_back for each in held.values())
    head = DiagnosisLine(f"  {plural(total, 'offset')} held back", heading=f"{len(held)} partitions")
    return [head, DiagnosisLine(compact(held), caption="partitions")]


def _behind(later: Sequence[OpenTransaction]) -> list[DiagnosisLine]:
    """Transactions that hold the partitions back when the first one has ended."""
    groups = by_transaction(later)
    lines = []
    for holders in groups[:BEHIND_SHOWN]:
        each = holders[0]
        whose = "no transactional id" if each.transaction is None else each.transaction.transactional_id
        where = f"from offset {each.first_offset:,}" if len(holders) == 1 else f"in {len(holders)} of these partitions"
        said = f"producer {each.producer.producer_id} ({whose}) {where}: {each.verdict.value}"
        lines.append(DiagnosisLine(said, caption="behind it"))
    if (more := len(groups) - BEHIND_SHOWN) > 0:
        lines.append(DiagnosisLine(f"and {plural(more, 'transaction')} more", caption=""))
    return lines
