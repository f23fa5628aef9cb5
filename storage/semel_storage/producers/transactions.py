"""PURE: which transactions of a log are undecided, and the entries of the aborted-transaction index.

A transaction is *open* from its first batch in the log until its marker. It keeps read-committed readers back for as
long as it is open, and then until the high watermark has passed its marker. KIP-98, "last stable offset".
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from functools import cache
from struct import Struct as Layout
from typing import Any

import msgspec

from semel_storage.producers.producers import ProducerState

ENTRY = Layout(">hqqqq")
"""Kafka's entry of a `.txnindex`: version, producer id, first offset, last offset, last stable offset."""
VERSION = 0
NO_OFFSET = -1

PAIR = Layout(">qq")
"""Producer id and first offset: how a Fetch answer names an aborted transaction (KIP-98). An entry holds them so."""
_PAIR_OF_ENTRY = ">2x16s16x"
_FIRST_OF_ENTRY = ">10xq16x"
_AT_ONCE = 128
"""Entries whose fields are cut out by one call: with records of a transaction or two a reader gets thousands."""


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction whose records nobody may see: offsets of its first record and of its abort marker.

    `last_stable_offset`: where the earliest transaction began that was open still after the marker, else the offset
    behind the marker. It ascends from one marker to the next, so that a search knows where it may stop.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int = NO_OFFSET


def encode(aborted: AbortedTransaction) -> bytes:
    return ENTRY.pack(
        VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
    )


def decode(entries: bytes) -> list[AbortedTransaction]:
    """The transactions that these entries of an index name, in their order."""
    return [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(entries)]


def pairs_of(entries: bytes) -> list[bytes]:
    """What a Fetch answer says of these entries of an index: a `PAIR` each, by first offset."""
    pairs: list[bytes] = _column(_PAIR_OF_ENTRY, entries)
    firsts: list[int] = _column(_FIRST_OF_ENTRY, entries)
    if firsts == sorted(firsts):
        return pairs
    return [pairs[at] for at in sorted(range(len(firsts)), key=firsts.__getitem__)]


def _column(layout: str, entries: bytes) -> list[Any]:
    """One field of each entry."""
    many, one = _many(layout), Layout(layout)
    whole = len(entries) - len(entries) % many.size
    found: list[Any] = []
    for at in range(0, whole, many.size):
        found += many.unpack_from(entries, at)
    found += [field for (field,) in one.iter_unpack(memoryview(entries)[whole:])]
    return found


@cache
def _many(layout: str) -> Layout:
    return Layout(layout[0] + layout[1:] * _AT_ONCE)


class Transactions:
    """The transactions of one log that are not over for its readers. Offsets are noted in the order of the log."""

    def __init__(self, states: Iterable[ProducerState] = (), decided: Sequence[tuple[int, int]] = ()) -> None:
        """`states`: the log's producers; `decided`: (marker's offset, first offset), ascending, as `decided` gives."""
        began = {state.txn_first_offset: state.producer_id for state in states if state.txn_first_offset >= 0}
        self._open: OrderedDict[int, int] = OrderedDict(sorted(began.items()))
        """First offset -> producer id."""
        self._decided = deque(decided)
        held = sorted([*self._open, *(first_offset for _, first_offset in self._decided)])
        self._unstable: OrderedDict[int, None] = OrderedDict.fromkeys(held)
        """First offsets of the open ones, and of those whose marker is not known to be committed."""

    @property
    def decided(self) -> list[tuple[int, int]]:
        """(marker's offset, first offset) of those that ended at or above the last high watermark asked about."""
        return list(self._decided)

    @property
    def unstable_offsets(self) -> list[int]:
        """First offsets of those that are open, or ended at or above the last high watermark asked about; ascending."""
        return list(self._unstable)

    def began(self, first_offset: int, producer_id: int) -> None:
        self._open[first_offset] = producer_id
        self._unstable[first_offset] = None

    def ended(self, first_offset: int, marker_offset: int) -> int:
        """The marker of the transaction that began at `first_offset`. Returns the last stable offset after it."""
        del self._open[first_offset]
        self._decided.append((marker_offset, first_offset))
        return next(iter(self._open), marker_offset + 1)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the earliest transaction began that is open, or whose marker is not below `high_watermark`.

        The high watermark never goes back.
        """
        decided = self._decided
        while decided and decided[0][0] < high_watermark:
            del self._unstable[decided.popleft()[1]]
        return next(iter(self._unstable), None)
