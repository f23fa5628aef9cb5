"""Moments in a broker's life that faults can wait for: what it has just written about a transaction or a group.

Much of that nobody sees from outside, and it is over in a millisecond: faults that come at random, or with a request,
hardly ever meet a transaction that is decided and not complete.
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
SNAPSHOT = "snapshot"
SWAP = "swap"
STEPS = tuple(f"Step{state}" for state in TRANSACTION_GROUP_STATES)
MOMENTS = (SERVES, MARKER, GENERATION, OFFSETS, SNAPSHOT, SWAP, *TRANSACTION_STATES, *STEPS)
"""The broker serves (again); or it has appended a marker, a generation of a group, offsets, a transaction's state or
that of a step of a transaction group, or written a log's producers down, or begun to put what compaction has left in
the place of what was there; none of which is durable yet."""
SWAP_FILE = f"{LOG}{SWAP_SUFFIX}"


class MomentTrigger(msgspec.Struct):
    """Call `strike` once, at the next moment of this name."""

    moment: str
    callback: Callable[[], object]


class Watch:
    """Knows what a broker does from what it appends. Looks at it only while somebody waits."""

    def __init__(self) -> None:
        self._waiting: list[MomentTrigger] = []

    def wait(self, trigger: MomentTrigger) -> None:
        assert trigger.moment in MOMENTS, f"there is no moment {trigger.moment!r}"
        self._waiting.append(trigger)

    def drop(self, trigger: MomentTrigger) -> None:
        """That one waits no more."""
        if trigger in self._waiting:
            self._waiting.remove(trigger)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._waiting.clear()

    def has_changed(self, path: str, chunks: Sequence[Buffer]) -> None:
        """These bytes stand at the end of that file now; without any the file has been put there whole."""
        if self._waiting:
            for moment in moments_in(path, b"".join(chunks)):
                self.has_come(moment)

    def has_come(self, moment: str) -> None:
        """It is that moment: one of those who wait for it strikes."""
        for trigger in self._waiting:
            if trigger.moment == moment:
                self._waiting.remove(trigger)
                trigger.callback()
                return


def moments_in(path: str, data: bytes) -> Iterator[str]:
    """What these bytes at the end of the file at `path` are about, or its being there."""
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
                yield GENERATION if isinstance(key, GroupMetadataKey) else OFFSETS


def _state_in(key: bytes, data: bytes) -> str:
    """What a record of `__transaction_state` says."""
    if version_of(key) == TRANSACTION_GROUP_KEY:
        return STEPS[decode_versioned(TransactionGroupValue, data).state]
    return TRANSACTION_STATES[decode_versioned(TransactionLogValue, data).transaction_status]
