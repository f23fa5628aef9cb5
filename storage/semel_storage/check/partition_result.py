"""PURE: combines the facts of all segment ranges of one partition, and checks the boundaries between ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from semel_storage.check.checks import Breaches, Check
from semel_storage.check.producer_pairs import DATA, EVENT, Events, check_pairs
from semel_storage.check.range_facts import AbortedRange, Facts


class UnendedTransaction(msgspec.Struct, frozen=True):
    """A transaction without a marker. `first_offset` holds the last stable offset back."""

    producer_id: int
    producer_epoch: int
    first_offset: int


class CheckedPartition(msgspec.Struct, kw_only=True):
    """The result for one partition. `last_stable_offset`: derived from the log alone."""

    topic: str
    partition: int
    segments: int
    size_bytes: int = 0
    batches: int = 0
    records: int = 0
    commits: int = 0
    aborts: int = 0
    start_offset: int = 0
    end_offset: int = 0
    torn_bytes: int = 0
    gone: int = 0
    """Segments that retention or compaction removed during the audit."""
    open: list[UnendedTransaction] = []
    breaches: Breaches

    @property
    def last_stable_offset(self) -> int:
        return min((each.first_offset for each in self.open), default=self.end_offset)


AbortedIndex = Mapping[tuple[int, int], int]


def combine(
    topic: str, number: int, pieces: Sequence[Facts], is_compacted: bool, aborted_index: AbortedIndex | None
) -> CheckedPartition:
    """Combine pieces, which are in log order. `aborted_index` None: aborted transactions are not checked."""
    partition = CheckedPartition(
        topic=topic, partition=number, segments=len({each.base_offset for each in pieces}), breaches=Breaches()
    )
    open_transactions: dict[int, tuple[int, int]] = {}
    before: Facts | None = None
    edges: list[Events] = []
    for index, piece in enumerate(pieces):
        _add_counts(partition, piece)
        if piece.is_gone:
            before, edges, open_transactions = None, [], {}  # a comparison across the missing piece proves nothing
            continue
        if not piece.batches:
            continue
        _check_boundary(partition, before, piece, is_compacted)
        mine = piece.edges.copy()
        mine["piece"] = index
        edges.append(mine)
        if aborted_index is not None and not is_compacted:
            _check_aborted(partition, piece.aborted, open_transactions, aborted_index)
        _carry_open_transactions(open_transactions, mine)
        before = piece
    every = np.concatenate(edges) if edges else np.empty(0, EVENT)
    every = every[np.lexsort((every["offset"], every["producer_id"]))]
    check_pairs(every, is_compacted, partition.breaches, boundaries_only=True)
    partition.open = [
        UnendedTransaction(producer_id, *open_transactions[producer_id])
        for producer_id in sorted(open_transactions, key=lambda each: open_transactions[each][1])
    ]
    return partition


def _add_counts(partition: CheckedPartition, piece: Facts) -> None:
    partition.size_bytes += piece.size_bytes
    partition.batches += piece.batches
    partition.records += piece.records
    partition.commits += piece.commits
    partition.aborts += piece.aborts
    partition.torn_bytes += piece.torn_bytes
    partition.gone += piece.is_gone
    partition.breaches.merge(piece.breaches)
    if piece.batches:
        partition.end_offset = piece.next_offset
        if partition.batches == piece.batches:
            partition.start_offset = piece.first_offset


def _check_boundary(partition: CheckedPartition, before: Facts | None, piece: Facts, is_compacted: bool) -> None:
    """A segment is named after its first offset, and starts where the previous one ends."""
    add = partition.breaches.add
    is_first_of_segment = piece.position == 0
    if is_first_of_segment and (
        piece.first_offset < piece.base_offset or (piece.first_offset != piece.base_offset and not is_compacted)
    ):
        add(Check.OFFSETS, piece.first_offset, f"the segment named {piece.base_offset} starts at this offset")
    if before is None:
        return
    skipped = piece.first_offset - before.next_offset
    if skipped < 0 or (skipped and not is_compacted):
        add(Check.OFFSETS, piece.first_offset, f"{before.next_offset} was expected after the previous segment")
    if piece.first_leader_epoch < before.last_leader_epoch:
        what = f"leader epoch {piece.first_leader_epoch} after {before.last_leader_epoch}"
        add(Check.LEADER_EPOCHS, piece.first_offset, what)


def _carry_open_transactions(open_transactions: dict[int, tuple[int, int]], edges: Events) -> None:
    """Update the open transactions after a piece: producer id -> (epoch, first offset)."""
    if not len(edges):
        return
    is_last = np.concatenate((edges["producer_id"][1:] != edges["producer_id"][:-1], [True]))
    for event in edges[is_last]:
        producer_id, epoch = int(event["producer_id"]), int(event["epoch"])
        if event["kind"] != DATA:
            open_transactions.pop(producer_id, None)
        elif not (
            event["from_boundary"] and producer_id in open_transactions and open_transactions[producer_id][0] == epoch
        ):
            open_transactions[producer_id] = (epoch, int(event["since"]))


def _check_aborted(
    partition: CheckedPartition,
    aborted: list[AbortedRange],
    open_transactions: dict[int, tuple[int, int]],
    index: AbortedIndex,
) -> None:
    """Check that the index names each aborted transaction: read_committed readers would return one that is missing."""
    for each in aborted:
        first = each.first_offset
        if each.from_boundary and each.producer_id in open_transactions:
            first = open_transactions[each.producer_id][1]
        if first < 0:
            continue  # the transaction wrote nothing here
        named = index.get((each.producer_id, each.marker_offset))
        if named is None or named > first:
            what = f"aborted transaction of producer {each.producer_id} from offset {first}: "
            what += "no entry of a .txnindex names it" if named is None else f"the .txnindex has it from offset {named}"
            partition.breaches.add(Check.ABORTED_INDEX, each.marker_offset, what)
