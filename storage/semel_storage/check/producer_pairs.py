"""PURE: checks each pair of consecutive batches of a producer: epochs, sequences, transactions and markers.

The same rules check neighbours within one range and across the boundary of two ranges: a range passes on the first and
the last events of each producer (`edges`). Sources: KIP-98 (sequences, markers), KIP-360 and KIP-890 (bumped epochs).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from semel_protocol.batch import CONTROL, TRANSACTIONAL, CorruptBatch
from semel_protocol.control import ControlType, read_marker

from semel_storage.check.checks import Breaches, Check
from semel_storage.check.header_walk import Flags, Headers, Ints

PLAIN, DATA, MARKER = 0, 1, 2
"""Kinds of events: a batch outside a transaction, a batch of a transaction, a marker."""
SEQUENCE_MASK = 0x7FFFFFFF
HALF = 1 << 30
"""Half of the sequence space. Below this distance the order of two sequences is known across the wrap."""
NO_COORDINATOR = -1

EVENT = np.dtype(
    [
        ("producer_id", "i8"),
        ("epoch", "i4"),
        ("kind", "i4"),
        ("offset", "i8"),
        ("first_sequence", "i8"),
        ("last_sequence", "i8"),
        ("is_commit", "i4"),
        ("coordinator_epoch", "i8"),
        ("since", "i8"),  # of DATA: first offset of its transaction, as far as the range shows
        ("from_boundary", "i4"),  # of DATA: the range holds nothing of the producer before `since`
        ("piece", "i8"),  # index of the range; a boundary is between two different ones
    ]
)
Events = NDArray[Any]


def events(headers: Headers, data: memoryview, breaches: Breaches) -> Events:
    """Return the batches with a producer id, sorted by producer and offset. Unreadable markers are breaches."""
    idx = np.flatnonzero(headers.columns["producer_id"] >= 0)
    idx = idx[np.argsort(headers.columns["producer_id"][idx].astype(np.int64), kind="stable")]
    columns = headers.columns[idx]
    found = np.zeros(len(idx), EVENT)
    for name, source in (("producer_id", "producer_id"), ("epoch", "producer_epoch"), ("offset", "base_offset")):
        found[name] = columns[source]
    attributes = columns["attributes"].astype(np.int64)
    is_marker = attributes & CONTROL != 0
    found["kind"] = np.where(is_marker, MARKER, np.where(attributes & TRANSACTIONAL != 0, DATA, PLAIN))
    found["first_sequence"] = columns["base_sequence"]
    found["last_sequence"] = (found["first_sequence"] + columns["last_offset_delta"]) & SEQUENCE_MASK
    found["coordinator_epoch"] = NO_COORDINATOR
    found["is_commit"] = -1
    for row in np.flatnonzero(is_marker).tolist():
        at = int(headers.positions[idx[row]])
        try:
            marker = read_marker(data[at : at + 12 + int(columns["batch_length"][row])])
        except CorruptBatch as e:
            breaches.add(Check.BATCH, int(found["offset"][row]), str(e))
            continue
        if marker is not None:
            found["is_commit"][row] = marker.control_type is ControlType.COMMIT
            found["coordinator_epoch"][row] = marker.coordinator_epoch
    _open_runs(found)
    return found


def _open_runs(found: Events) -> None:
    """Set for each DATA event the first offset of its transaction, and whether it may have started in an earlier
    range.
    """
    if not len(found):
        return
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = found["producer_id"][1:] != found["producer_id"][:-1]
    is_data = found["kind"] == DATA
    goes_on = np.zeros(len(found), np.bool_)
    goes_on[1:] = ~is_first[1:] & is_data[:-1] & (found["epoch"][1:] == found["epoch"][:-1])
    starts = np.maximum.accumulate(np.where(is_data & ~goes_on, np.arange(len(found)), 0))
    found["since"] = np.where(is_data, found["offset"][starts], -1)
    found["from_boundary"] = is_data & is_first[starts]


def edges(found: Events) -> Events:
    """Return the events that boundary checks need: for each producer the first and the last event of each kind."""
    keep = np.zeros(len(found), np.bool_)
    for mask in (np.ones(len(found), np.bool_), found["kind"] != MARKER, found["kind"] == MARKER):
        rows = np.flatnonzero(mask)
        if len(rows):
            ids = found["producer_id"][rows]
            differs = ids[1:] != ids[:-1]
            keep[rows[np.concatenate(([True], differs))]] = True
            keep[rows[np.concatenate((differs, [True]))]] = True
    return found[keep]


def check_pairs(found: Events, is_compacted: bool, breaches: Breaches, *, boundaries_only: bool = False) -> None:
    """Add a breach for each event that contradicts its predecessor. `found`: sorted by producer and offset."""
    every = _pairs(found, np.ones(len(found), np.bool_), boundaries_only)
    _check_epochs(*every, breaches)
    _check_transactions(*every, is_compacted, breaches)
    _check_sequences(*_pairs(found, found["kind"] != MARKER, boundaries_only), is_compacted, breaches)
    _check_coordinators(*_pairs(found, found["kind"] == MARKER, boundaries_only), breaches)


def _pairs(found: Events, mask: Flags, boundaries_only: bool) -> tuple[Events, Events]:
    chain = found[mask]
    before, after = chain[:-1], chain[1:]
    fits = before["producer_id"] == after["producer_id"]
    if boundaries_only:
        fits &= before["piece"] != after["piece"]
    return before[fits], after[fits]


def _check_epochs(before: Events, after: Events, breaches: Breaches) -> None:
    for a, b in _rows(before, after, after["epoch"] < before["epoch"]):
        what = f"producer {b['producer_id']}: epoch {b['epoch']} after {a['epoch']} at offset {a['offset']}"
        breaches.add(Check.PRODUCER_EPOCHS, int(b["offset"]), what)


def _check_transactions(before: Events, after: Events, is_compacted: bool, breaches: Breaches) -> None:
    is_open = (before["kind"] == DATA) & (after["epoch"] >= before["epoch"])
    is_left = is_open & ((after["kind"] == PLAIN) | ((after["kind"] == DATA) & (after["epoch"] != before["epoch"])))
    for a, b in _rows(before, after, is_left):
        what = f"producer {b['producer_id']}: the transaction at offset {a['since']} has no marker before this batch"
        breaches.add(Check.TRANSACTIONS, int(b["offset"]), what)
    if is_compacted:
        return  # compaction may have removed the data between two markers
    is_twice = (before["kind"] == MARKER) & (after["kind"] == MARKER) & (before["is_commit"] >= 0)
    for name in ("epoch", "is_commit", "coordinator_epoch"):
        is_twice &= before[name] == after[name]
    for a, b in _rows(before, after, is_twice):
        what = f"producer {b['producer_id']} epoch {b['epoch']}: the marker at offset {a['offset']} is repeated"
        breaches.add(Check.MARKERS, int(b["offset"]), what)


def _check_sequences(before: Events, after: Events, is_compacted: bool, breaches: Breaches) -> None:
    same_epoch = after["epoch"] == before["epoch"]
    expected: Ints = np.where(same_epoch, (before["last_sequence"] + 1) & SEQUENCE_MASK, 0)
    distance = (after["first_sequence"] - expected) & SEQUENCE_MASK
    is_repeat = same_epoch & (distance >= HALF)
    is_gap = (distance > 0) & ~is_repeat & (after["epoch"] >= before["epoch"])
    for mask, check in ((is_repeat, Check.REPEATS), (is_gap, Check.SEQUENCES)):
        if is_compacted and check is Check.SEQUENCES:
            continue
        for (_, b), due in zip(_rows(before, after, mask), expected[mask].tolist(), strict=True):
            what = f"producer {b['producer_id']} epoch {b['epoch']}: sequence {b['first_sequence']} instead of {due}"
            breaches.add(check, int(b["offset"]), what)


def _check_coordinators(before: Events, after: Events, breaches: Breaches) -> None:
    is_known = (before["coordinator_epoch"] >= 0) & (after["coordinator_epoch"] >= 0)
    for a, b in _rows(before, after, is_known & (after["coordinator_epoch"] < before["coordinator_epoch"])):
        what = (
            f"producer {b['producer_id']}: a marker of coordinator epoch {b['coordinator_epoch']} "
            f"after {a['coordinator_epoch']}"
        )
        breaches.add(Check.COORDINATOR_EPOCHS, int(b["offset"]), what)


def _rows(before: Events, after: Events, mask: Flags) -> list[tuple[Any, Any]]:
    return list(zip(before[mask], after[mask], strict=True))
