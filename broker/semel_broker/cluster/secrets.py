"""The secrets that all brokers of a cluster share: random bytes in its store, which the first broker writes."""

from __future__ import annotations

from typing import Final

from semel_broker.cluster.store import Expect, OutcomeUnknownError, Put, Store
from semel_broker.world import World

SECRET_BYTES: Final = 32


async def shared_secret(store: Store, key: str, world: World) -> bytes:
    """The secret under this key, which is made if there is none: of brokers that start at once, one makes it."""
    while (entry := await store.get(key)) is None:
        try:
            await store.transact([Expect(key)], [Put(key, world.rng.randbytes(SECRET_BYTES))])
        except OutcomeUnknownError as error:
            world.log.info("secret_unknown", key=key, error=str(error))
    return entry.value
