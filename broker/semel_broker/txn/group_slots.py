"""The transaction groups of one partition as they stand: for each its metadata, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator

from semel_protocol.hashes import group_of

from semel_broker.txn.model.group_metadata import TransactionGroup, check_transition
from semel_broker.txn.turn import Turn


class GroupSlot:
    """One group. `metadata` is what is durable, None at first; `newest` what is appended. Whoever opens transactions is
    judged by `newest`: to refuse them early does no harm, to let them in late would."""

    __slots__ = ("metadata", "name", "newest", "turn")

    def __init__(self, name: str, metadata: TransactionGroup | None = None) -> None:
        self.name = name
        self.metadata = self.newest = metadata
        self.turn = Turn()

    def apply(self, metadata: TransactionGroup) -> None:
        """What is durable takes effect."""
        check_transition(None if self.metadata is None else self.metadata.state, metadata.state)
        self.metadata = self.newest = metadata

    def drop(self) -> None:
        """The group is no more. The one who has its turn still has to leave."""
        self.metadata = self.newest = None


class GroupSlots:
    """All groups, in the order in which they came."""

    def __init__(self) -> None:
        self._slots: dict[str, GroupSlot] = {}

    def __iter__(self) -> Iterator[GroupSlot]:
        return iter(list(self._slots.values()))

    def get(self, name: str) -> TransactionGroup | None:
        """What is known of the group."""
        slot = self._slots.get(name)
        return None if slot is None else slot.metadata

    def newest(self, transactional_id: str) -> TransactionGroup | None:
        """The group of a member as it was last appended."""
        slot = self._slots.get(group_of(transactional_id)) if self._slots else None
        return None if slot is None else slot.newest

    def put(self, metadata: TransactionGroup) -> None:
        """A slot for what was found in the log."""
        self._slots[metadata.name] = GroupSlot(metadata.name, metadata)

    async def enter(self, name: str) -> GroupSlot:
        """The group's slot, once it is one's turn; an empty one for a group that is not known. To be `left`."""
        while True:
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = GroupSlot(name)
            await slot.turn.wait()
            if self._slots.get(name) is slot:
                return slot
            slot.turn.give()  # it was dropped meanwhile

    def leave(self, slot: GroupSlot) -> None:
        """Let the next one have the slot; one that nothing came of is dropped."""
        if slot.newest is None and self._slots.get(slot.name) is slot:
            del self._slots[slot.name]
        slot.turn.give()

    def known(self) -> list[TransactionGroup]:
        """Every group that there is, by name."""
        found = [slot.metadata for slot in self._slots.values() if slot.metadata is not None]
        return sorted(found, key=lambda group: group.name)
