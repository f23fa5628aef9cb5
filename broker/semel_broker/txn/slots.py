"""The transactional ids of this broker as they stand: for each its metadata, whose turn it is, and who waits."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Iterator

from semel_protocol.hashes import group_of

from semel_broker.answers import CloseConnectionError
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.state import check_transition
from semel_broker.txn.turn import Turn

LEFT_MAX = 8
"""Connections that are remembered as left by their producer; what still comes over older ones is not told from new."""


class Slot:
    """One transactional id. `metadata` is None until its first record is durable."""

    __slots__ = ("_completed", "_connection", "_left", "_offsets_connection", "metadata", "transactional_id", "turn")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata | None = None) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.turn = Turn()
        self._connection = self._offsets_connection = 0
        self._left: tuple[int, ...] = ()
        self._completed: Future[bool] | None = None

    def apply(self, metadata: TransactionMetadata) -> None:
        """What is durable takes effect; live and on replay alike."""
        check_transition(None if self.metadata is None else self.metadata.state, metadata.state)
        self.metadata = metadata
        if self._completed is not None and not metadata.is_prepared:
            if not self._completed.done():
                self._completed.set_result(True)
            self._completed = None

    def arrived_over(self, connection: int) -> None:
        """The newest connection wins: what a producer sent over one that it has since replaced comes too late.

        Without epochs that change (transaction version 1) a late EndTxn or AddPartitionsToTxn of one transaction looks
        just like one of the next. `connection`: its number; 0 if it does not matter. Raises CloseConnectionError;
        nobody listens at the other end.
        """
        if connection:
            self._check_connection(connection, self._connection)
            if 0 < self._connection < connection:
                self._left = (*self._left[1 - LEFT_MAX :], self._connection)
            self._connection = connection

    def offsets_arrived_over(self, connection: int) -> None:
        """The same for TxnOffsetCommit, which may go to the group's coordinator over a connection of its own."""
        self.records_arrived_over(connection)
        self._check_connection(connection, self._offsets_connection)
        self._offsets_connection = connection

    def records_arrived_over(self, connection: int) -> None:
        """The same for Produce. Where partitions have connections of their own, nothing is known of their age: it is
        late if it comes over one that this producer's requests to its coordinator have left for a newer one."""
        if connection in self._left:
            raise self._stale()

    def forget_connection(self) -> None:
        """The producer has a new epoch: that tells old from new."""
        self._connection = self._offsets_connection = 0
        self._left = ()

    def _check_connection(self, connection: int, newest: int) -> None:
        if connection < newest:
            raise self._stale()

    def _stale(self) -> CloseConnectionError:
        return CloseConnectionError("stale_connection", transactional_id=self.transactional_id)

    def completion(self) -> Future[bool]:
        """Done once the transaction that is being ended is (True), or will not be by this broker (False).

        For the one who has the turn.
        """
        if self._completed is None or self._completed.done():
            self._completed = get_running_loop().create_future()
        return self._completed

    @property
    def is_being_ended(self) -> bool:
        """The outcome is decided, and not every partition knows it yet."""
        return self.metadata is not None and self.metadata.is_prepared

    def abandon(self) -> None:
        """Whoever waits for the completion is to wait no longer."""
        if self._completed is not None and not self._completed.done():
            self._completed.set_result(False)


class Slots:
    """All transactional ids, in the order in which they came."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._by_group: dict[str, dict[str, Slot]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        return iter(list(self._slots.values()))

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """What is known of the id."""
        slot = self._slots.get(transactional_id)
        return None if slot is None else slot.metadata

    def slot(self, transactional_id: str) -> Slot:
        """The slot of an id that is known."""
        return self._slots[transactional_id]

    def put(self, metadata: TransactionMetadata) -> Slot:
        """A slot for what was found in the log."""
        return self._add(Slot(metadata.transactional_id, metadata))

    async def enter(self, transactional_id: str) -> Slot:
        """The id's slot, once it is one's turn; an empty one for an id that is not known. To be `left`."""
        while True:
            slot = self._slots.get(transactional_id)
            if slot is None:
                slot = self._add(Slot(transactional_id))
            await slot.turn.wait()
            if self._slots.get(transactional_id) is slot:
                return slot
            slot.turn.give()  # it was dropped meanwhile

    def leave(self, slot: Slot) -> None:
        """Let the next one have the slot; one that nothing came of is dropped."""
        if slot.metadata is None and self._slots.get(slot.transactional_id) is slot:
            self._remove(slot)
        slot.turn.give()

    def drop(self, slot: Slot) -> None:
        """The id is no more. The one who has its turn still has to `leave`."""
        slot.metadata = None

    def members(self, group: str) -> list[Slot]:
        """The members of a transaction group that are known, by transactional id."""
        slots = self._by_group.get(group, {})
        return [slots[name] for name in sorted(slots) if (txn := slots[name].metadata) is not None and txn.is_member]

    def known(self) -> list[TransactionMetadata]:
        """Everything there is, by transactional id."""
        found = [slot.metadata for slot in self._slots.values() if slot.metadata is not None]
        return sorted(found, key=lambda txn: txn.transactional_id)

    # --- inside ---

    def _add(self, slot: Slot) -> Slot:
        name = slot.transactional_id
        self._slots[name] = slot
        if group := group_of(name):
            self._by_group.setdefault(group, {})[name] = slot
        return slot

    def _remove(self, slot: Slot) -> None:
        name = slot.transactional_id
        del self._slots[name]
        if group := group_of(name):
            del self._by_group[group][name]
            if not self._by_group[group]:
                del self._by_group[group]
