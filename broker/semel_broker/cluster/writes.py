"""Changes of the store on somebody's behalf: what is answered was written, and is seen in this broker's image."""

from __future__ import annotations

from collections.abc import Sequence

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.store import (
    Change,
    Expect,
    OutcomeUnknownError,
    Store,
    StoreClosedError,
    StoreUnavailableError,
)


async def write(store: Store, feed: Feed, expects: Sequence[Expect], changes: Sequence[Change]) -> bool:
    """Whether this transaction was written. If not, or if nobody knows, the image is as new as that: decide again.

    Raises REQUEST_TIMED_OUT while the store cannot be reached; then it may have been written.
    """
    try:
        revision = await store.transact(expects, changes)
        if revision is not None:
            await feed.reached(revision)
            return True
    except OutcomeUnknownError:
        pass  # the image will tell
    except (StoreUnavailableError, StoreClosedError) as error:
        raise _out_of_reach(error) from None
    await catch_up(feed)
    return False


async def catch_up(feed: Feed) -> None:
    """Know all that has happened so far, so that what is refused is refused for what is. Raises REQUEST_TIMED_OUT."""
    try:
        await feed.barrier()
    except (StoreUnavailableError, OutcomeUnknownError, StoreClosedError) as error:
        raise _out_of_reach(error) from None


def _out_of_reach(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the store of the cluster cannot be reached ({error}): try again")
