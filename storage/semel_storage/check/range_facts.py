"""PURE: checks the batches of one segment range, and collects the facts that the boundary checks need."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from semel_protocol.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL

from semel_storage.check.checks import Breaches, Check
from semel_storage.check.data_dir import RANGE_BYTES, SegmentRange
from semel_storage.check.header_walk import Flags, Headers, walk
from semel_storage.check.producer_pairs import DATA, EVENT, MARKER, Events, check_pairs, edges, events

Read = Callable[[SegmentRange, int, int], memoryview]
BATCH_BYTES_MAX = 1 << 30
NO_OFFSET = -1


class AbortedRange(msgspec.Struct, frozen=True, array_like=True):
    """An aborted transaction. `first_offset`: as far as the range shows; -1 if the range has no data of it."""

    producer_id: int
    first_offset: int
    marker_offset: int
    from_boundary: bool
    """The transaction may have started in an earlier range."""


class Facts(msgspec.Struct, kw_only=True):
    """Facts about one piece that was read at once. `next_offset`: after its last batch. `events`: the edges, as raw
    bytes.
    """

    base_offset: int
    position: int
    size_bytes: int = 0
    batches: int = 0
    records: int = 0
    commits: int = 0
    aborts: int = 0
    first_offset: int = -1
    next_offset: int = -1
    first_leader_epoch: int = -1
    last_leader_epoch: int = -1
    torn_bytes: int = 0
    is_gone: bool = False
    aborted: list[AbortedRange] = []
    breaches: Breaches
    events: bytes = b""

    @property
    def edges(self) -> Events:
        return np.frombuffer(self.events, EVENT)


def examine(segment_range: SegmentRange, read: Read) -> list[Facts]:
    """Examine a range piece by piece. Memory is bounded by RANGE_BYTES, or by one batch that is larger."""
    found: list[Facts] = []
    at, want = segment_range.start, RANGE_BYTES
    while at < segment_range.end:
        facts = Facts(base_offset=segment_range.base_offset, position=at, breaches=Breaches())
        try:
            data = read(segment_range, at, min(want, segment_range.end - at))
        except FileNotFoundError:
            facts.is_gone = True
            return [*found, facts]
        headers = walk(data)
        is_rest = at + len(data) >= segment_range.end or not len(data)
        if not len(headers) and not headers.fault and not is_rest and want < BATCH_BYTES_MAX:
            want *= 2
            continue
        _check_batches(segment_range, headers, facts)
        _collect_events(segment_range, headers, data, facts)
        found.append(facts)
        at += headers.end
        if headers.fault or is_rest or not len(headers):
            _check_rest(segment_range, headers, segment_range.end - at, at, facts)
            break
        want = RANGE_BYTES
    return found


def _check_rest(segment_range: SegmentRange, headers: Headers, rest: int, at: int, facts: Facts) -> None:
    """Check the bytes after the last whole batch. In the newest segment they are a write in progress or one that a
    crash cut short.
    """
    if not rest:
        return
    end = facts.next_offset if facts.next_offset >= 0 else segment_range.base_offset
    if segment_range.is_last and end >= segment_range.recovery_point:
        facts.torn_bytes += rest
        return
    what = (
        headers.fault or f"the last batch lacks bytes, or the index of the segment lists a batch at {segment_range.end}"
    )
    facts.breaches.add(Check.BATCH, end, f"{segment_range.path} at byte {at}: {what}")


def _check_batches(segment_range: SegmentRange, headers: Headers, facts: Facts) -> None:
    """Check each batch alone, and its offset against the previous batch."""
    if not len(headers):
        return
    base, delta, count = (headers.ints(name) for name in ("base_offset", "last_offset_delta", "record_count"))
    epochs = headers.ints("leader_epoch")
    following = base + delta + 1
    facts.size_bytes, facts.batches = headers.end, len(headers)
    facts.first_offset, facts.next_offset = int(base[0]), int(following[-1])
    facts.first_leader_epoch, facts.last_leader_epoch = int(epochs[0]), int(epochs[-1])
    is_control = headers.columns["attributes"] & CONTROL != 0
    facts.records = int(count[~is_control].sum())

    def note(check: Check, mask: Flags, what: Callable[[int], str]) -> None:
        for i in np.flatnonzero(mask).tolist():
            facts.breaches.add(check, int(base[i]), what(i))

    fails = ~headers.crc_holds
    if (
        segment_range.is_last
        and headers.end == segment_range.end - facts.position
        and fails[-1]
        and segment_range.recovery_point <= base[-1]
    ):
        fails[-1] = False  # a crash can leave holes in the last write; the next start truncates it
        facts.torn_bytes = int(headers.end - headers.positions[-1])
    note(Check.CRC, fails, lambda i: f"{segment_range.path} at byte {facts.position + int(headers.positions[i])}")
    skipped = base[1:] - following[:-1]
    after = np.concatenate(([False], (skipped != 0) if not segment_range.is_compacted else skipped < 0))
    note(Check.OFFSETS, after, lambda i: f"{following[i - 1]} was expected after the batch at {base[i - 1]}")
    wrong = (count < 0) | (delta < 0) | (count > delta + 1) | ((count <= delta) & (not segment_range.is_compacted))
    note(Check.COUNTS, wrong, lambda i: f"{count[i]} records up to offset delta {delta[i]}")
    _check_times(headers, note)
    falls = np.concatenate(([False], epochs[1:] < epochs[:-1]))
    note(Check.LEADER_EPOCHS, falls, lambda i: f"leader epoch {epochs[i]} after {epochs[i - 1]}")


def _check_times(headers: Headers, note: Callable[[Check, Flags, Callable[[int], str]], None]) -> None:
    """The max timestamp is not below the base timestamp. No check if the broker or the cleaner set one of them."""
    first, last = headers.ints("base_timestamp"), headers.ints("max_timestamp")
    stamped = headers.columns["attributes"] & (LOG_APPEND_TIME | DELETE_HORIZON) != 0
    wrong = (last < first) & ~stamped & (headers.ints("record_count") > 0)
    note(Check.TIMESTAMPS, wrong, lambda i: f"first {first[i]} ms, latest {last[i]} ms")


def _collect_events(segment_range: SegmentRange, headers: Headers, data: memoryview, facts: Facts) -> None:
    """Collect the events of producers and their transactions."""
    if not len(headers):
        return
    nameless = (headers.columns["producer_id"] < 0) & (headers.columns["attributes"] & (TRANSACTIONAL | CONTROL) != 0)
    for i in np.flatnonzero(nameless).tolist():
        facts.breaches.add(
            Check.TRANSACTIONS, int(headers.ints("base_offset")[i]), "transactional without a producer id"
        )
    found = events(headers, data, facts.breaches)
    check_pairs(found, segment_range.is_compacted, facts.breaches)
    markers = found["kind"] == MARKER
    facts.commits = int((markers & (found["is_commit"] == 1)).sum())
    facts.aborts = int((markers & (found["is_commit"] == 0)).sum())
    facts.aborted = _aborted(found)
    facts.events = edges(found).tobytes()


def _aborted(found: Events) -> list[AbortedRange]:
    """Return the aborted transactions, also those without data in this range before the marker."""
    before, after = found[:-1], found[1:]
    follows = before["producer_id"] == after["producer_id"]
    ended = follows & (before["kind"] == DATA) & (after["is_commit"] == 0)
    aborted = [
        AbortedRange(int(a["producer_id"]), int(a["since"]), int(b["offset"]), bool(a["from_boundary"]))
        for a, b in zip(before[ended], after[ended], strict=True)
    ]
    alone = found[np.concatenate((np.ones(min(1, len(found)), np.bool_), ~follows)) & (found["is_commit"] == 0)]
    return aborted + [AbortedRange(int(b["producer_id"]), NO_OFFSET, int(b["offset"]), True) for b in alone]
