"""Moments in the life of a broker that a fault can wait for. A moment is a write about a transaction or a group.

Most of these states are not visible from outside and last about a millisecond. A fault at a random time, or with a
request, seldom meets a transaction that is decided and not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from semel_protocol.batch import iterate
from semel_protocol.records import decode_batch
from semel_storage.disk.disk import Buffer
from semel_storage.internal_topics import (
    CONSUMER_OFFSETS,
    TRANSACTION_GROUP_KEY,
    TRANSACTION_GROUP_STATES,
    TRANSACTION_STATE,
    TRANSACTION_STATES,
    GroupMetadataKey,
    OffsetCommitKey,
    TransactionGroupValue,
    TransactionLogValue,
    decode_offsets_key,
    decode_versioned,
    version_of,
)
from semel_storage.log.snapshot import SNAPSHOT as SNAPSHOT_FILE
from semel_storage.segments.compaction_swap import SWAP as SWAP_SUFFIX
from semel_storage.segments.segment import LOG

SERVES = "serves"
MARKER = "marker"
GENERATION = "generation"
OFFSETS = "offsets"
EPOCH = "epoch"
SNAPSHOT = "snapshot"
SWAP = "swap"
STEPS = tuple(f"Step{state}" for state in TRANSACTION_GROUP_STATES)
MOMENTS = (SERVES, MARKER, GENERATION, EPOCH, OFFSETS, SNAPSHOT, SWAP, *TRANSACTION_STATES, *STEPS)
"""The broker serves (again), or it has just written one of these:

- a marker, a generation of a group, a record of a group of the consumer protocol, or offsets;
- a state of a transaction, or of a step of a transaction group;
- a snapshot of a log's producers;
- a file with the result of compaction that will replace a segment.

None of these is durable at that moment.
"""
SWAP_FILE = f"{LOG}{SWAP_SUFFIX}"


class MomentTrigger(msgspec.Struct):
    """Call `callback` once, at the next moment of this name."""

    moment: str
    callback: Callable[[], object]


class MomentWatch:
    """Detects the moments of a broker in the bytes that it appends. It decodes them only while a trigger waits."""

    def __init__(self) -> None:
        self._waiting: list[MomentTrigger] = []

    def wait(self, trigger: MomentTrigger) -> None:
        assert trigger.moment in MOMENTS, f"there is no moment {trigger.moment!r}"
        self._waiting.append(trigger)

    def drop(self, trigger: MomentTrigger) -> None:
        """Remove a trigger."""
        if trigger in self._waiting:
            self._waiting.remove(trigger)

    def clear(self) -> None:
        """Remove all triggers."""
        self._waiting.clear()

    def has_changed(self, path: str, chunks: Sequence[Buffer]) -> None:
        """Called when `chunks` were appended to a file; with no chunks, when the whole file was replaced or renamed."""
        if self._waiting:
            for moment in moments_in(path, b"".join(chunks)):
                self.has_come(moment)

    def has_come(self, moment: str) -> None:
        """Call the first trigger that waits for this moment."""
        for trigger in self._waiting:
            if trigger.moment == moment:
                self._waiting.remove(trigger)
                trigger.callback()
                return


def moments_in(path: str, data: bytes) -> Iterator[str]:
    """The moments in these bytes at the end of a file, or in the existence of the file."""
    if path.endswith(SNAPSHOT_FILE):
        yield SNAPSHOT
    elif path.endswith(SWAP_FILE):
        yield SWAP
    elif path.endswith(LOG):
        yield from _moments_in_log(path, data)


def _moments_in_log(path: str, data: bytes) -> Iterator[str]:
    for header, batch in iterate(data):
        if header.is_control:
            yield MARKER
        elif f"/{TRANSACTION_STATE}-" in path:
            for record in decode_batch(batch):
                if record.value is not None and record.key is not None:
                    yield _state_in(record.key, record.value)
        elif f"/{CONSUMER_OFFSETS}-" in path:
            for record in decode_batch(batch):
                key = decode_offsets_key(record.key) if record.key is not None else None
                if isinstance(key, GroupMetadataKey):
                    yield GENERATION
                else:
                    yield OFFSETS if key is None or isinstance(key, OffsetCommitKey) else EPOCH


def _state_in(key: bytes, data: bytes) -> str:
    """The state in a record of `__transaction_state`."""
    if version_of(key) == TRANSACTION_GROUP_KEY:
        return STEPS[decode_versioned(TransactionGroupValue, data).state]
    return TRANSACTION_STATES[decode_versioned(TransactionLogValue, data).transaction_status]
