"""Writes to the store that a client requested: each returns once this broker's image shows its outcome.

The image of a broker may be some milliseconds behind the store, so it may lack what another broker has just answered. A
write that expects revisions fails then. What ends without such a write must not be decided on an old image: a refusal,
"nothing to change", and the entries that a filter selects. `catch_up`, `settle`, `stays_absent` or `stays_as_is` comes
before these.

A request that timed out is never carried out behind a newer answer. Its transaction may reach the store, and be applied
any time later. So each transaction expects what every later answer changes: the revision of its key; for a key
that it creates, the revision of its `absence_key`; for ACLs and users, the revision of a key that all changes of the
kind write. An answer that changes nothing writes one of these, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.records import absence_key
from semel_broker.cluster.store import (
    ABSENT,
    CHANGES_MAX,
    Change,
    Delete,
    Expect,
    OutcomeUnknownError,
    Put,
    Store,
    StoreClosedError,
    StoreUnavailableError,
)

TRIES: Final = 10
SERIAL_CHANGES_MAX: Final = CHANGES_MAX - 1
"""Changes in one call of `write_serially`."""


async def write(store: Store, feed: Feed, expects: Sequence[Expect], changes: Sequence[Change]) -> bool:
    """Write a transaction. Returns whether it is known to be written. If not, the image is current: decide again.

    Raises REQUEST_TIMED_OUT while the store cannot be reached; the transaction may have been written.
    """
    try:
        revision = await store.transact(expects, changes)
        if revision is not None:
            await feed.reached(revision)
            return True
    except OutcomeUnknownError:
        pass  # the image shows the outcome
    except (StoreUnavailableError, StoreClosedError) as error:
        raise out_of_reach(error) from None
    await catch_up(feed)
    return False


async def write_serially(store: Store, feed: Feed, written: str, changes: Sequence[Change]) -> None:
    """Write changes that expect no revisions of their own keys, if no others of their kind come in between.

    `written`: the key that all changes of the kind write and expect. A transaction whose answer was lost may be applied
    later, even after the broker that sent it has died. Then there has been another change, so it fails, and undoes
    nothing that was answered meanwhile. Raises REQUEST_TIMED_OUT; the changes may have been written.
    """
    for _ in range(TRIES):
        expect = Expect(written, feed.image.written.get(written, ABSENT))
        if await write(store, feed, [expect], [*changes, Put(written, b"")]):
            return
    raise KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, f"other changes of {written} came first in {TRIES} attempts: retry the request"
    )


async def settle(store: Store, feed: Feed, written: str) -> None:
    """As `catch_up`; and a transaction of `write_serially` that the store has received but not applied yet fails.

    To be called before an answer that comes without a change, such as "nothing found": a transaction that is applied
    later would make it untrue. Raises REQUEST_TIMED_OUT.
    """
    await write_serially(store, feed, written, [])


def creating(feed: Feed, key: str) -> list[Expect]:
    """The expectations of a transaction that creates a key. It fails if the key exists, and if it was removed, or was
    answered not to exist, since the image's revision: a transaction that is applied late undoes no later answer."""
    absence = absence_key(key)
    return [Expect(key, ABSENT), Expect(absence, feed.image.written.get(absence, ABSENT))]


def removing(key: str) -> list[Change]:
    """The changes of a transaction that removes a key: a creation that is applied late fails."""
    return [Delete(key), Put(absence_key(key), b"")]


async def stays_absent(store: Store, feed: Feed, key: str) -> None:
    """As `catch_up`; and a creation of the key that the store has received but not applied yet fails.

    To be called before the answer that there is no such thing. If the key exists afterwards, the image has it.
    Raises REQUEST_TIMED_OUT.
    """
    try:
        revision = await store.transact([], [Put(absence_key(key), b"")])
        assert revision is not None, "it expects nothing"
        await feed.reached(revision)
    except (StoreUnavailableError, OutcomeUnknownError, StoreClosedError) as error:
        raise out_of_reach(error) from None


async def stays_as_is(store: Store, feed: Feed, key: str, value: bytes, revision: int) -> bool:
    """Write a key again with the value that it has. Every change that was decided on this revision and is not applied
    yet fails then.

    To be called before an answer that leaves the key as it is, such as "exists already" or "nothing to change".
    Returns False if the key has changed: decide again; the image is current. Raises REQUEST_TIMED_OUT.
    """
    return await write(store, feed, [Expect(key, revision)], [Put(key, value)])


async def catch_up(feed: Feed) -> None:
    """Wait until the image shows all changes that were written before this call. Raises REQUEST_TIMED_OUT."""
    try:
        await feed.barrier()
    except (StoreUnavailableError, OutcomeUnknownError, StoreClosedError) as error:
        raise out_of_reach(error) from None


def out_of_reach(error: Exception) -> KafkaError:
    """REQUEST_TIMED_OUT for an error of the store."""
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the store of the cluster cannot be reached ({error}): try again")
