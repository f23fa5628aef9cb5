"""Allocates producer ids from blocks that this broker claims in the store (KIP-730).

A block is claimed durably before its first id is used. A broker that crashes loses the rest of its block, so no id is
allocated twice, neither by one broker nor by two brokers over one store.
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
    """Allocates ids: `await next()` returns each id once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    async def next(self) -> int:
        """The next producer id; waits for the store once per block.

        Raises COORDINATOR_NOT_AVAILABLE if the store does not answer.
        """
        while self._next == self._end:
            async with self._claiming:
                if self._next == self._end:  # another caller may have claimed a block in the meantime
                    try:
                        self._next = await self._claim()
                    except StoreError as error:  # the block may be claimed and lost, which does no harm
                        raise KafkaError(
                            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot allocate a producer id, try again: {error}"
                        ) from error
                    self._end = self._next + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _claim(self) -> int:
        """Claim a block durably; its first id."""
        while True:
            entry = await self._store.get(KEY)
            first = int(entry.value) if entry else 0
            expect = Expect(KEY, entry.revision if entry else ABSENT)
            if await self._store.transact([expect], [Put(KEY, str(first + BLOCK_SIZE).encode())]) is not None:
                return first
