"""PURE: the stretches of one partition, put together: what shows across borders, and what is open at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pyspark_semel.audit.checks import Breaches, Check
from pyspark_semel.audit.producer_pairs import DATA, EVENT, Events, judge
from pyspark_semel.audit.stretch_facts import Aborted, Facts


class OpenTransaction(msgspec.Struct, frozen=True):
    """Data without a marker. `first_offset` holds the last stable offset back."""

    producer_id: int
    producer_epoch: int
    first_offset: int


class Partition(msgspec.Struct, kw_only=True):
    """What the audit found out about one partition. `last_stable_offset`: as far as the log itself tells."""

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
    """Segments that retention or compaction removed under the audit."""
    open: list[OpenTransaction] = []
    breaches: Breaches

    @property
    def last_stable_offset(self) -> int:
        return min((each.first_offset for each in self.open), default=self.end_offset)


AbortedIndex = Mapping[tuple[int, int], int]


def tell(
    topic: str, number: int, pieces: Sequence[Facts], is_compacted: bool, aborted_index: AbortedIndex | None
) -> Partition:
    """Put the pieces together, which come in the order of the log. `aborted_index` None: that is not checked."""
    partition = Partition(
        topic=topic, partition=number, segments=len({each.base_offset for each in pieces}), breaches=Breaches()
    )
    open_ones: dict[int, tuple[int, int]] = {}
    before: Facts | None = None
    edges: list[Events] = []
    for index, piece in enumerate(pieces):
        _add_up(partition, piece)
        if piece.is_gone:
            before, edges, open_ones = None, [], {}  # what its neighbours say across it proves nothing
            continue
        if not piece.batches:
            continue
        _judge_border(partition, before, piece, is_compacted)
        mine = piece.edges.copy()
        mine["piece"] = index
        edges.append(mine)
        if aborted_index is not None and not is_compacted:
            _judge_aborted(partition, piece.aborted, open_ones, aborted_index)
        _go_on(open_ones, mine)
        before = piece
    every = np.concatenate(edges) if edges else np.empty(0, EVENT)
    every = every[np.lexsort((every["offset"], every["producer_id"]))]
    judge(every, is_compacted, partition.breaches, borders_only=True)
    partition.open = [
        OpenTransaction(who, *open_ones[who]) for who in sorted(open_ones, key=lambda who: open_ones[who][1])
    ]
    return partition


def _add_up(partition: Partition, piece: Facts) -> None:
    partition.size_bytes += piece.size_bytes
    partition.batches += piece.batches
    partition.records += piece.records
    partition.commits += piece.commits
    partition.aborts += piece.aborts
    partition.torn_bytes += piece.torn_bytes
    partition.gone += piece.is_gone
    partition.breaches.take(piece.breaches)
    if piece.batches:
        partition.end_offset = piece.next_offset
        if partition.batches == piece.batches:
            partition.start_offset = piece.first_offset


def _judge_border(partition: Partition, before: Facts | None, piece: Facts, is_compacted: bool) -> None:
    """A segment is named after its first offset, and begins where the one before it ends."""
    add = partition.breaches.add
    is_first_of_segment = piece.position == 0
    if is_first_of_segment and (
        piece.first_offset < piece.base_offset or (piece.first_offset != piece.base_offset and not is_compacted)
    ):
        add(Check.OFFSETS, piece.first_offset, f"the segment named {piece.base_offset} begins with this offset")
    if before is None:
        return
    skipped = piece.first_offset - before.next_offset
    if skipped < 0 or (skipped and not is_compacted):
        add(Check.OFFSETS, piece.first_offset, f"{before.next_offset} was due behind the segment before")
    if piece.first_leader_epoch < before.last_leader_epoch:
        what = f"leader epoch {piece.first_leader_epoch} after {before.last_leader_epoch}"
        add(Check.LEADER_EPOCHS, piece.first_offset, what)


def _go_on(open_ones: dict[int, tuple[int, int]], edges: Events) -> None:
    """What is open after a piece: producer id -> (epoch, first offset)."""
    if not len(edges):
        return
    is_last = np.concatenate((edges["producer_id"][1:] != edges["producer_id"][:-1], [True]))
    for event in edges[is_last]:
        who, epoch = int(event["producer_id"]), int(event["epoch"])
        if event["kind"] != DATA:
            open_ones.pop(who, None)
        elif not (event["from_border"] and who in open_ones and open_ones[who][0] == epoch):
            open_ones[who] = (epoch, int(event["since"]))


def _judge_aborted(
    partition: Partition, aborted: list[Aborted], open_ones: dict[int, tuple[int, int]], index: AbortedIndex
) -> None:
    """read_committed readers leave out what the index names: an aborted transaction that it lacks would be read."""
    for each in aborted:
        first = each.first_offset
        if each.from_border and each.producer_id in open_ones:
            first = open_ones[each.producer_id][1]
        if first < 0:
            continue  # nothing was written here
        named = index.get((each.producer_id, each.marker_offset))
        if named is None or named > first:
            what = f"aborted, of producer {each.producer_id} from offset {first}: "
            what += "no entry of a .txnindex names it" if named is None else f"the .txnindex says from {named}"
            partition.breaches.add(Check.ABORTED_INDEX, each.marker_offset, what)
