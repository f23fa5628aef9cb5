"""The seam to the cluster's memory: topics, configs, producer id blocks and whatever else must outlive a broker.

A store is a map from keys to bytes with one revision that grows by one with every transaction that changes something.
What it can do: read at a revision; change several keys at once if several keys are still at the revisions that were
read (compare-and-swap); watch what changes after a revision; and keep keys only as long as a session lives. That is
etcd's model: `etcd_store.py` puts etcd behind it for a cluster, `local_store.py` is a file in the data directory of a
single broker. One suite of tests holds for both.

Keys are paths (`topics/flights`, `configs/brokers/0`, `producer-ids/next`); values are the owner's business.

To follow a prefix: `list` it, then `watch` it from the listing's revision; nothing lies between the two. When the watch
raises `CompactedError`, do the same again.
"""

from __future__ import annotations

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


NO_LEASE = 0
"""The lease of a key that stays until it is deleted."""


class Put(msgspec.Struct, frozen=True):
    """Write `value` under `key`, new or not. With `lease` (a session's) the key goes when that session ends; without,
    it stays, also if it had one before."""

    key: str
    value: bytes
    lease: int = NO_LEASE


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


class Gone(msgspec.Struct, frozen=True):
    """A key that was removed, and the revision of the transaction that did it."""

    key: str
    revision: int


class Changes(msgspec.Struct, frozen=True):
    """Whole transactions under a prefix, oldest first: entries written and keys removed, at least one."""

    changes: tuple[Entry | Gone, ...]
    revision: int


CHANGES_MAX = 128
"""Changes in one transaction, and expectations: what etcd takes unless told otherwise (`--max-txn-ops`)."""


class StoreError(Exception):
    """The store did not do what was asked. This class itself: it refused, nothing was written, and says why."""


class StoreUnavailableError(StoreError):
    """No store was reached in time; nothing was written. Try again later."""


class OutcomeUnknownError(StoreError):
    """A transaction was sent and never answered: it may have been applied, or may yet be. Read, decide again."""


class SessionEndedError(StoreError):
    """The session that a `Put` names has ended; nothing was written. Open a new one."""


class CompactedError(StoreError):
    """The changes that a watch should have gone on with are no longer kept. List again, watch from there."""


class StoreClosedError(StoreError):
    """The store was closed; it answers nobody any more."""


class Watch(Protocol):
    """The changes under a prefix after a revision: each once, in order, none left out, whatever happens in between.

    `async for changes in watch` ends once `close` was called. Raises CompactedError, StoreClosedError. A caller that is
    cancelled while it waits loses nothing.
    """

    @property
    def revision(self) -> int:
        """Everything up to here was handed out. Moves on, while somebody waits, also when others change."""
        ...

    def __aiter__(self) -> Watch: ...

    async def __anext__(self) -> Changes: ...

    async def close(self) -> None:
        """End it, also for whoever waits for changes."""
        ...


class Session(Protocol):
    """A lease that is kept alive. When it ends, by itself or by `close`, the keys written with it are removed."""

    @property
    def lease(self) -> int:
        """For `Put`."""
        ...

    @property
    def deadline(self) -> float:
        """Until when it lives for sure, in seconds of the clock `World.monotonic`: counted from the moment *before* the
        last keep-alive that was answered had been sent. Who acts only before this deadline never acts after the session
        has ended for others, however long a pause or a request took."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the deadline has passed, or the store said that it has ended. Never becomes False again."""
        ...

    async def ended(self) -> None:
        """Wait until it has ended. Look at `has_ended` before acting: a process that was paused hears of it late."""
        ...

    async def close(self) -> None:
        """End it and remove its keys now. If the store cannot be reached they go when the lease runs out."""
        ...


class Store(Protocol):
    """What was answered is durable: neither a reading nor an outcome can be undone by a crash.

    Everything raises StoreUnavailableError when the store cannot be reached in time, StoreClosedError after `close`.
    """

    async def get(self, key: str) -> Entry | None:
        """The entry of `key`, or None."""
        ...

    async def list(self, prefix: str) -> Listing:
        """All entries whose key starts with `prefix`."""
        ...

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """Apply all of `changes` if all of `expects` hold; the revision they were written at, or None if one does
        not hold (then nothing is written: read again and decide again). At most CHANGES_MAX of each; of several changes
        of one key the last one counts. If nothing changes - no changes, or only deletions of what is not there - the
        revision is the present one. Raises OutcomeUnknownError, SessionEndedError."""
        ...

    def watch(self, prefix: str, revision: int) -> Watch:
        """The changes of keys that start with `prefix`, from the first after `revision` on."""
        ...

    async def open_session(self, ttl_ms: int) -> Session:
        """Begin a session that ends for others at least `ttl_ms` after the last sign of life."""
        ...

    async def close(self) -> None:
        """Wait for what is under way and let go of the files or connections. Open watches raise StoreClosedError.
        Sessions are closed by whoever opened them, before."""
        ...


def last_of_each_key(changes: Sequence[Change]) -> list[Change]:
    """One change per key: what is left of several is the last."""
    assert len(changes) <= CHANGES_MAX, f"{len(changes)} changes in one transaction, {CHANGES_MAX} at most"
    return list({change.key: change for change in changes}.values())
