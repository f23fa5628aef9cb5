"""Producer ids, handed out from blocks that the store has given to this broker for good.

A block is claimed durably before its first id is used, so that a broker that dies loses the rest of its block and
never hands an id out twice; nor do two brokers over one store (KIP-730's scheme).
"""

from __future__ import annotations

import asyncio

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.store import ABSENT, Expect, Put, Store, StoreError

BLOCK_SIZE = 1000
KEY = "producer-ids/next"


class NeedsProducerIdError(Exception):
    """A decision needs a fresh producer id: `ProducerIds.next` gives one, then the caller decides again."""


class ProducerIds:
    """`await next()` is a number that nobody else ever gets."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    async def next(self) -> int:
        """The next producer id; waits for the store once per block. Raises COORDINATOR_NOT_AVAILABLE if it is away."""
        while self._next == self._end:
            async with self._claiming:
                if self._next == self._end:  # nobody else has claimed one while we waited
                    try:
                        self._next = await self._claim()
                    except StoreError as error:  # a block may be lost: there are enough of them
                        raise KafkaError(
                            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no producer id to be had now: {error}"
                        ) from error
                    self._end = self._next + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _claim(self) -> int:
        """The first id of a block that is ours, durably."""
        while True:
            entry = await self._store.get(KEY)
            first = int(entry.value) if entry else 0
            expect = Expect(KEY, entry.revision if entry else ABSENT)
            if await self._store.transact([expect], [Put(KEY, str(first + BLOCK_SIZE).encode())]) is not None:
                return first
