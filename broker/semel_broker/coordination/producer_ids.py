"""Allocates producer ids from blocks of numbers that this broker claims in the store (KIP-730).

A block is claimed durably before its first number is used. A broker that crashes loses the rest of its block, so no
number is allocated twice, neither by one broker nor by two brokers over one store. The producer id binds the number to
its owner (`producer_owners`). The numbers wrap after 2^34.

Versions before the bound ids gave out the numbers of `producer-ids/next` as they are. They may run beside this one
during an upgrade, so this version leaves that key to them and counts in another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.records import PRODUCER_NUMBERS
from semel_broker.cluster.store import ABSENT, Expect, Put, Store, StoreError
from semel_broker.coordination.producer_owners import ProducerOwners

BLOCK_SIZE = 1000

FreshIds = Mapping[str, int]
"""Fresh producer ids, by the transactional id that owns each."""


class NeedsProducerIdError(Exception):
    """A decision needs a fresh producer id for this transactional id: `ProducerIds.next` gives one, then the caller
    decides again."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id


class ProducerIds:
    """Allocates ids: `await next(owner)` returns each id once. `owners` binds and checks them."""

    def __init__(self, store: Store, owners: ProducerOwners) -> None:
        self.owners = owners
        self._store = store
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    async def next(self, owner: str) -> int:
        """The next producer id, bound to its owner; waits for the store once per block.

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
        number = self._next
        self._next += 1
        return self.owners.bind(owner, number)

    async def _claim(self) -> int:
        """Claim a block durably; its first number."""
        while True:
            entry = await self._store.get(PRODUCER_NUMBERS)
            first = int(entry.value) if entry else 0
            expect = Expect(PRODUCER_NUMBERS, entry.revision if entry else ABSENT)
            end = Put(PRODUCER_NUMBERS, str(first + BLOCK_SIZE).encode())
            if await self._store.transact([expect], [end]) is not None:
                return first
