"""PURE: tracks the open transactions of a log for its last stable offset, and encodes transaction index entries.

A transaction is *open* from its first batch in the log until its marker. It holds the last stable offset back while it
is open, and after that until the high watermark has passed its marker. KIP-98, "last stable offset".
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
"""Producer id and first offset: an aborted transaction in a Fetch response (KIP-98), and these bytes of an entry."""
_PAIR_OF_ENTRY = ">2x16s16x"
_FIRST_OF_ENTRY = ">10xq16x"
_AT_ONCE = 128
"""Entries unpacked by one call: with small aborted transactions, one read may return thousands of entries."""


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """An aborted transaction: the offsets of its first record and of its abort marker.

    `last_stable_offset`: the first offset of the earliest transaction that is open after the marker, otherwise the
    offset after the marker. It ascends from marker to marker, so that a search knows where to stop.
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
    """Decode entries of a transaction index."""
    return [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(entries)]


def pairs_of(entries: bytes) -> list[bytes]:
    """The entries as in a Fetch response: one `PAIR` each, by first offset."""
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
    """The transactions of one log that hold the last stable offset back. Call `began` and `ended` in offset order."""

    def __init__(self, states: Iterable[ProducerState] = (), decided: Sequence[tuple[int, int]] = ()) -> None:
        """`states`: the log's producers. `decided`: (marker offset, first offset), ascending, from `decided`."""
        began = {state.txn_first_offset: state.producer_id for state in states if state.txn_first_offset >= 0}
        self._open: OrderedDict[int, int] = OrderedDict(sorted(began.items()))
        """First offset -> producer id."""
        self._decided = deque(decided)
        held = sorted([*self._open, *(first_offset for _, first_offset in self._decided)])
        self._unstable: OrderedDict[int, None] = OrderedDict.fromkeys(held)
        """First offsets of open transactions, and of those with a marker that may be above the high watermark."""

    @property
    def decided(self) -> list[tuple[int, int]]:
        """(marker offset, first offset) of those with a marker at or above the high watermark of the last query."""
        return list(self._decided)

    @property
    def unstable_offsets(self) -> list[int]:
        """First offsets of those that are open, or have a marker at or above the last queried high watermark."""
        return list(self._unstable)

    def began(self, first_offset: int, producer_id: int) -> None:
        self._open[first_offset] = producer_id
        self._unstable[first_offset] = None

    def ended(self, first_offset: int, marker_offset: int) -> int:
        """End the transaction that began at `first_offset`. Returns the last stable offset after its marker."""
        del self._open[first_offset]
        self._decided.append((marker_offset, first_offset))
        return next(iter(self._open), marker_offset + 1)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the earliest transaction that is open or has its marker at or above `high_watermark`.

        None without one. Forgets the transactions with a marker below `high_watermark`, which must not decrease
        except by truncation.
        """
        decided = self._decided
        while decided and decided[0][0] < high_watermark:
            del self._unstable[decided.popleft()[1]]
        return next(iter(self._unstable), None)
