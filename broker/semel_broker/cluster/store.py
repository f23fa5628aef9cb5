"""The seam to the cluster's memory: topics, configs, producer id blocks and whatever else must outlive a broker.

A store is a map from keys to bytes with one revision that grows by one with every transaction. Two operations suffice:
read at a revision, and change several keys at once if several keys are still at the revisions that were read
(compare-and-swap). That is etcd's model, so that a cluster can put etcd behind it; `local_store.py` is a file in
the data directory of a single broker.

Keys are paths (`topics/flights`, `configs/brokers/0`, `producer-ids/next`); values are the owner's business.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """A key that exists, and the revision of the transaction that last wrote it."""

    key: str
    value: bytes
    revision: int


class Listing(msgspec.Struct, frozen=True):
    """The entries under a prefix in key order, all as of one revision."""

    entries: tuple[Entry, ...]
    revision: int


class Put(msgspec.Struct, frozen=True):
    """Write `value` under `key`, new or not."""

    key: str
    value: bytes


class Delete(msgspec.Struct, frozen=True):
    """Remove `key`, if it is there."""

    key: str


Change = Put | Delete

ABSENT = 0
"""The revision of a key that does not exist."""


class Expect(msgspec.Struct, frozen=True):
    """The condition that `key` was last written at `revision` (`ABSENT`: that it does not exist)."""

    key: str
    revision: int = ABSENT


class Store(Protocol):
    """What was answered is durable: neither a reading nor an outcome can be undone by a crash."""

    async def get(self, key: str) -> Entry | None:
        """The entry of `key`, or None."""
        ...

    async def list(self, prefix: str) -> Listing:
        """All entries whose key starts with `prefix`."""
        ...

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """Apply all of `changes` if all of `expects` hold; the revision they were written at, or None if one does
        not hold (then nothing is written: read again and decide again)."""
        ...

    async def close(self) -> None:
        """Wait for what is under way and let go of the files or connections."""
        ...
