"""Moves ids from state to state: one request of an id runs after the other; decide, persist, apply, answer.

Transactional ids and transaction groups use it. A decision is a pure function of what is known, the time and fresh
producer ids; it takes effect once its records are stored. Consumer groups share only the journal: they decide on a
request at once, while records of earlier ones are still being stored, so they need no lock.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import Row

from semel_broker.coordination.journal import Journal, JournalAppend
from semel_broker.coordination.producer_ids import FreshIds, NeedsProducerIdError, ProducerIds
from semel_broker.coordination.producer_owners import transactional_owner
from semel_broker.world import World

D = TypeVar("D")


class FifoLock:
    """A lock that requests get in the order in which they ask. `take` takes a free one without waiting."""

    __slots__ = ("_queue", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._queue: deque[Future[None]] | None = None  # made when first needed: most ids never have one

    def take(self) -> bool:
        """Take the lock if it is free; whether it was."""
        if self.is_taken:
            return False
        self.is_taken = True
        return True

    async def wait(self) -> None:
        """Take the lock after all requests that asked before."""
        if self.take():
            return
        if self._queue is None:
            self._queue = deque()
        mine: Future[None] = get_running_loop().create_future()
        self._queue.append(mine)
        try:
            await mine
        except CancelledError:
            if mine.done() and not mine.cancelled():
                self.give()  # the lock was handed to this request before it was cancelled
            raise

    def give(self) -> None:
        """Hand the lock to the next request, or free it."""
        while self._queue:
            following = self._queue.popleft()
            if not following.done():
                following.set_result(None)
                return
        self.is_taken = False


class Slot(Protocol):
    """One id. `is_empty`: the id has no metadata, stored or being stored. `group`: see `Slots.in_group`."""

    @property
    def key(self) -> str: ...

    @property
    def lock(self) -> FifoLock: ...

    @property
    def group(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...


S = TypeVar("S", bound=Slot)


class Slots(Generic[S]):
    """The slots by id, in the order in which they were made. `make(id)`: an empty slot."""

    def __init__(self, make: Callable[[str], S]) -> None:
        self._make = make
        self._slots: dict[str, S] = {}
        self._groups: dict[str, dict[str, S]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._slots.values()))

    def get(self, key: str) -> S | None:
        """The slot of this id, if there is one."""
        return self._slots.get(key)

    def add(self, slot: S) -> S:
        """Add a slot, of an id that has none."""
        self._slots[slot.key] = slot
        if slot.group:
            self._groups.setdefault(slot.group, {})[slot.key] = slot
        return slot

    async def enter(self, key: str) -> S:
        """The id's slot with its lock taken; a new, empty slot for an unknown id. The caller has to `leave` it."""
        while True:
            slot = self._slots.get(key)
            if slot is None:
                slot = self.add(self._make(key))
            await slot.lock.wait()
            if self._slots.get(key) is slot:
                return slot
            slot.lock.give()  # the slot was removed in the meantime

    def leave(self, slot: S) -> None:
        """Give the lock to the next request. An empty slot is removed."""
        if slot.is_empty and self._slots.get(slot.key) is slot:
            del self._slots[slot.key]
            if slot.group:
                del self._groups[slot.group][slot.key]
                if not self._groups[slot.group]:
                    del self._groups[slot.group]
        slot.lock.give()

    def in_group(self, group: str) -> list[S]:
        """The slots of this group, by id."""
        slots = self._groups.get(group, {})
        return [slots[key] for key in sorted(slots)]


class Engine:
    """Decides and persists for one shard. `check` raises NOT_COORDINATOR unless this broker coordinates its ids."""

    def __init__(self, world: World, journal: Journal, producer_ids: ProducerIds, *, check: Callable[[], None]) -> None:
        self._world = world
        self._journal = journal
        self._producer_ids = producer_ids
        self._check = check
        self.closed: KafkaError | None = None
        """The answer to requests that wait, or come, once this broker no longer coordinates the ids."""

    async def decide(self, decide: Callable[[int, FreshIds], D], fresh_ids: dict[str, int]) -> D | None:
        """The decision of `decide(now in ms, fresh ids)`; the caller has the lock of the id.

        None: the decision needs a producer id. It is in `fresh_ids` now, and the caller decides again.
        Raises what `decide` raises. NOT_COORDINATOR replaces a refusal if this broker no longer coordinates the id: a
        former coordinator cannot know who is fenced. CONCURRENT_TRANSACTIONS is no refusal: the caller waits for the
        end of the transaction and decides again.
        """
        try:
            return decide(self._world.now_ms(), fresh_ids)
        except NeedsProducerIdError as need:
            name = need.transactional_id
            fresh_ids[name] = await self._producer_ids.next(transactional_owner(name))
            return None
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._check()
            raise

    def check_room(self) -> None:
        """As `Journal.check_room`."""
        self._journal.check_room()

    def append(self, rows: Sequence[Row]) -> JournalAppend:
        """Append the records of a decision. Raises the error of a closed engine, and those of `Journal.append`."""
        if self.closed is not None:
            raise self.closed
        return self._journal.append(rows)

    async def persist(self, rows: Sequence[Row]) -> None:
        """`append`, and return once the records are durable: now the decision may take effect."""
        stored = self.append(rows)
        if not stored.is_durable:
            await stored.durable()
