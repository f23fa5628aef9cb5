"""One transactional id as its coordinator holds it: its metadata, and the connections its producer has used.

With transaction version 1 the epoch does not change between transactions, so a late EndTxn or AddPartitionsToTxn of one
transaction looks the same as one of the next. The connection tells them apart: the newest connection wins. A new epoch
tells them apart by itself, so the connections used with the former epoch do not count. Why the broker keeps the numbers
of connections, and not the slot: `groups.connections`.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop

import msgspec
from msgspec.structs import replace
from semel_protocol.hashes import group_of

from semel_broker.answers import CloseConnectionError
from semel_broker.coordination.engine import FifoLock
from semel_broker.coordination.lru_table import LruTable
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import DEAD, TransactionMetadata
from semel_broker.txn.model.state import check_successor

LEFT_MAX = 8
"""Connections remembered as left by their producer. A late request over an older one is not recognised."""
PRODUCERS_MAX = 100_000
"""The producers whose connections are remembered. A late request of a producer that is forgotten is not noticed."""


class ProducerConnections(msgspec.Struct, frozen=True):
    """The connections that a producer has used, by number; 0: none. `newest`: for requests to the coordinator.
    `newest_of_offsets`: for TxnOffsetCommit. `left`: those that it has left for a newer one, the last `LEFT_MAX`."""

    producer: ProducerIdentity
    newest: int = 0
    newest_of_offsets: int = 0
    left: tuple[int, ...] = ()


class TransactionSlot:
    """One transactional id. `metadata` is None until its first record is durable. `connections`: of all producers
    of this broker, by transactional id. See `engine.Slot`."""

    __slots__ = ("_completed", "_connections", "group", "key", "lock", "metadata")

    def __init__(
        self,
        transactional_id: str,
        connections: LruTable[str, ProducerConnections],
        metadata: TransactionMetadata | None = None,
    ) -> None:
        self.key = transactional_id
        self.group = group_of(transactional_id) or ""
        self.metadata = metadata
        self.lock = FifoLock()
        self._connections = connections
        self._completed: Future[bool] | None = None

    @property
    def is_empty(self) -> bool:
        return self.metadata is None

    def apply(self, metadata: TransactionMetadata) -> None:
        """Put durable metadata into effect; the same live and on replay."""
        check_successor(self.metadata, metadata)
        self.metadata = metadata
        if self._completed is not None and not metadata.is_prepared:
            if not self._completed.done():
                self._completed.set_result(True)
            self._completed = None

    def drop(self) -> None:
        """Forget the id. The request that has the lock still has to leave the slot."""
        assert self.lock.is_taken, self.key
        assert self.metadata is None or self.metadata.state is DEAD, self.metadata
        self.metadata = None

    # --- completion ---

    @property
    def is_being_ended(self) -> bool:
        """Whether the outcome is decided and some partition has no marker yet."""
        return self.metadata is not None and self.metadata.is_prepared

    def completion(self) -> Future[bool]:
        """Done once the transaction that is being ended is complete (True), or once this broker gives up (False).

        Several requests may wait for it: the one that has the lock, and the one that ends a step of the id's group.
        """
        assert self.is_being_ended, self.metadata
        if self._completed is None or self._completed.done():
            self._completed = get_running_loop().create_future()
        return self._completed

    def abandon(self) -> None:
        """End the wait for the completion without one."""
        if self._completed is not None and not self._completed.done():
            self._completed.set_result(False)

    # --- connections ---

    def arrived_over(self, connection: int) -> None:
        """Note the connection of a request to the coordinator. `connection`: its number; 0 if it does not matter.

        Raises CloseConnectionError for a connection that the producer has replaced: nothing listens there any more.
        """
        if connection:
            used = self._used()
            self._check_connection(connection, used.newest)
            left = (*used.left[1 - LEFT_MAX :], used.newest) if 0 < used.newest < connection else used.left
            self._connections.put(self.key, replace(used, newest=connection, left=left))

    def offsets_arrived_over(self, connection: int) -> None:
        """The same for TxnOffsetCommit, which may use a connection of its own to the group's coordinator."""
        self.records_arrived_over(connection)
        used = self._used()
        self._check_connection(connection, used.newest_of_offsets)
        self._connections.put(self.key, replace(used, newest_of_offsets=connection))

    def records_arrived_over(self, connection: int) -> None:
        """The same for Produce. The age of a connection to a partition leader is unknown. So a Produce is late only if
        it comes over a connection that the producer's requests to its coordinator have left for a newer one."""
        if connection in self._used().left:
            raise self._stale()

    def _used(self) -> ProducerConnections:
        """The connections that the producer has used with its present epoch."""
        assert self.metadata is not None
        used = self._connections.get(self.key)
        if used is None or used.producer != self.metadata.identity:
            return ProducerConnections(self.metadata.identity)
        return used

    def _check_connection(self, connection: int, newest: int) -> None:
        if connection < newest:
            raise self._stale()

    def _stale(self) -> CloseConnectionError:
        return CloseConnectionError("stale_connection", transactional_id=self.key)
