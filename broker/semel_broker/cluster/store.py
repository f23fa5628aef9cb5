"""The interface of a cluster's store, which holds topics, settings, producer id blocks and all other shared state.

A store is a map from keys to bytes. It has one revision, which grows by one with each transaction that changes a key. A
read returns the entries at one revision. A transaction changes several keys if other keys are at expected revisions
(compare-and-swap). A watch returns the changes after a revision. A key with the lease of a session is removed when the
session ends. This is etcd's model. `etcd/store.py` is the store of a cluster. `local_store.py` is a file in the data
directory of a single broker. The same tests run on both.

Keys are paths (`topics/flights`, `configs/brokers/0`, `producer-ids/next`); their owners define the values.

To follow a prefix: `list` it, then `watch` it from the listing's revision. No change is left out between the two. When
the watch raises `CompactedError`, begin again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from semel_broker.world import World


class StoreEntry(msgspec.Struct, frozen=True):
    """A key, its value, and the revision of the transaction that last wrote it."""

    key: str
    value: bytes
    revision: int


class Listing(msgspec.Struct, frozen=True):
    """The entries under a prefix at one revision, in key order."""

    entries: tuple[StoreEntry, ...]
    revision: int


NO_LEASE = 0
"""The lease of a key that stays until it is deleted."""


class Put(msgspec.Struct, frozen=True):
    """Write `value` under `key`, which may exist. With the `lease` of a session, the key is removed when that session
    ends. Without a lease the key stays, also if it had a lease before."""

    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(msgspec.Struct, frozen=True):
    """Remove `key`, if it exists."""

    key: str


Change = Put | Delete

ABSENT = 0
"""The revision of a key that does not exist."""


class Expect(msgspec.Struct, frozen=True):
    """The condition that `key` was last written at `revision` (`ABSENT`: that it does not exist)."""

    key: str
    revision: int = ABSENT


class RemovedKey(msgspec.Struct, frozen=True):
    """A key that was removed, and the revision of the transaction that removed it."""

    key: str
    revision: int


class Changes(msgspec.Struct, frozen=True):
    """Whole transactions under a prefix, oldest first: entries written and keys removed, at least one."""

    changes: tuple[StoreEntry | RemovedKey, ...]
    revision: int


CHANGES_MAX = 128
"""Changes in one transaction, and expectations: etcd's default bound (`--max-txn-ops`)."""


class StoreError(Exception):
    """The store did not execute a request. An error of this class itself: it refused the request and wrote nothing."""


class StoreUnavailableError(StoreError):
    """The store was not reached in time; nothing was written. Try again later."""


class OutcomeUnknownError(StoreError):
    """A transaction was sent and not answered: it may have been applied, or may be applied later. Read, decide
    again.
    """


class SessionEndedError(StoreError):
    """The session that a `Put` names has ended; nothing was written. Open a new one."""


class CompactedError(StoreError):
    """The store no longer has the next changes of a watch. List again, and watch from there."""


class StoreClosedError(StoreError):
    """The store was closed."""


class Watch(Protocol):
    """The changes under a prefix after a revision: each once, in order, none left out.

    `async for changes in watch` ends after `close`. Raises CompactedError, StoreClosedError. A caller that is cancelled
    while it waits loses no change.
    """

    @property
    def revision(self) -> int:
        """All changes up to this revision were returned. During a wait it also grows with changes of other keys."""
        ...

    def __aiter__(self) -> Watch: ...

    async def __anext__(self) -> Changes: ...

    async def close(self) -> None:
        """End the watch, also for a caller that waits."""
        ...


class Session(Protocol):
    """A lease that is kept alive. When the session ends, by itself or by `close`, the keys with its lease are
    removed.
    """

    @property
    def lease(self) -> int:
        """The lease for `Put`."""
        ...

    @property
    def deadline(self) -> float:
        """The time until which the session certainly lives, in seconds of `World.monotonic`. It is counted from
        *before* the last answered keep-alive was sent. So a broker that acts only before its deadline never acts after
        other brokers have seen the session end, even if it was paused.
        """
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the deadline has passed or the store has ended the session. Never becomes False again."""
        ...

    async def ended(self) -> None:
        """Wait until the session has ended. A paused process returns late from here, so check `has_ended` before each
        action of a leader.
        """
        ...

    async def close(self) -> None:
        """End the session and remove its keys now. If the store cannot be reached, they are removed when the lease
        expires.
        """
        ...


class Store(Protocol):
    """All answers are durable: a crash undoes neither a value that was read nor an outcome.

    All methods raise StoreUnavailableError when the store cannot be reached in time, StoreClosedError after `close`.
    """

    async def get(self, key: str) -> StoreEntry | None:
        """The entry of `key`, or None."""
        ...

    async def list(self, prefix: str) -> Listing:
        """All entries whose key starts with `prefix`."""
        ...

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """Apply all of `changes` if all of `expects` hold. Returns the revision at which they were written. None: one
        of `expects` does not hold, and nothing was written; the caller reads and decides again.

        At most CHANGES_MAX of each. Of several changes of one key the last one counts. If nothing changes (no changes,
        or only deletions of absent keys) the revision is the current one. Raises OutcomeUnknownError,
        SessionEndedError.
        """
        ...

    def watch(self, prefix: str, revision: int) -> Watch:
        """Watch the keys that start with `prefix`, from the first change after `revision` on."""
        ...

    async def open_session(self, ttl_ms: int) -> Session:
        """Begin a session. Other brokers see it end no earlier than `ttl_ms` after its last keep-alive."""
        ...

    async def close(self) -> None:
        """Wait for the requests under way, and close files or connections. Open watches raise StoreClosedError. The
        owners of sessions close them first.
        """
        ...


def last_of_each_key(changes: Sequence[Change]) -> list[Change]:
    """One change per key: the last one."""
    assert len(changes) <= CHANGES_MAX, f"{len(changes)} changes in one transaction, {CHANGES_MAX} at most"
    return list({change.key: change for change in changes}.values())


SECRET_BYTES: Final = 32


async def shared_secret(store: Store, key: str, world: World) -> bytes:
    """The secret under this key, which is made if there is none: of brokers that start at once, one makes it."""
    while (entry := await store.get(key)) is None:
        try:
            await store.transact([Expect(key)], [Put(key, world.rng.randbytes(SECRET_BYTES))])
        except OutcomeUnknownError as error:
            world.log.info("secret_unknown", key=key, error=str(error))
    return entry.value
