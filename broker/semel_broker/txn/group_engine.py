"""The transaction groups of one partition of `__transaction_state`: decides about a group and its members together.

One request at a time decides about a group. It holds the locks of all members that may have a transaction open, while
it decides and until the decision is durable: one append, all or nothing. It does not wait for the locks of members that
are being ended, which no decision may change, nor of members of earlier steps, which can no longer open a transaction.

A request that has a group's lock may wait for the locks of members, because no member ever waits for its group's lock.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, wait
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import group_of

from semel_broker.coordination.engine import Engine, FifoLock, Slots
from semel_broker.coordination.journal import JournalAppend
from semel_broker.coordination.producer_ids import FreshIds
from semel_broker.txn.model import metadata
from semel_broker.txn.model.group_metadata import (
    COMMITTED,
    DEAD,
    OPEN,
    TransactionGroup,
    check_step,
    check_successor,
)
from semel_broker.txn.model.group_records import group_row
from semel_broker.txn.model.group_state import Members, TransactionGroupDecision
from semel_broker.txn.model.metadata import ONGOING, TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.requests import Init
from semel_broker.txn.slot import TransactionSlot
from semel_broker.world import Logger

DecideGroup = Callable[[TransactionGroup | None, Members, int, FreshIds], TransactionGroupDecision]
"""(what is known, the members, now in ms, fresh producer ids) -> the decision."""


class GroupSlot:
    """One group. `metadata` is what is durable, None at first; `newest` what is appended. See `engine.Slot`.

    A member opens a transaction only if `newest` has its step open. A refusal before the record is durable does no
    harm; an admission after it would.
    """

    __slots__ = ("key", "lock", "metadata", "newest")
    group = ""

    def __init__(self, name: str, metadata: TransactionGroup | None = None) -> None:
        self.key = name
        self.metadata = self.newest = metadata
        self.lock = FifoLock()

    @property
    def is_empty(self) -> bool:
        return self.newest is None

    def apply(self, metadata: TransactionGroup) -> None:
        """Put durable metadata into effect. A tombstone forgets the group."""
        check_successor(self.metadata, metadata)
        self.metadata = self.newest = None if metadata.state is DEAD else metadata


class GroupEngine:
    """Moves the transaction groups of one shard. `members` are its transactional ids, `apply_member` puts a durable
    decision about one into effect. `check` raises NOT_COORDINATOR unless this broker coordinates them. `hold_ms_max`:
    how long an answer waits for markers."""

    def __init__(
        self,
        log: Logger,
        members: Slots[TransactionSlot],
        engine: Engine,
        apply_member: Callable[[TransactionSlot, TransactionMetadata], None],
        *,
        check: Callable[[], None],
        hold_ms_max: int,
    ) -> None:
        self._log = log
        self._members = members
        self._engine = engine
        self._apply_member = apply_member
        self._check = check
        self._hold_s_max = hold_ms_max / 1000
        self._tasks: dict[Task[TransactionGroupDecision], None] = {}
        self.slots: Slots[GroupSlot] = Slots(GroupSlot)

    # --- looking ---

    def add(self, group: TransactionGroup) -> None:
        """Add a group that a replay has found."""
        self.slots.add(GroupSlot(group.name, group))

    def known(self) -> list[TransactionGroup]:
        """Every group, by name."""
        found = [slot.metadata for slot in self.slots if slot.metadata is not None]
        return sorted(found, key=lambda group: group.name)

    def newest(self, transactional_id: str) -> TransactionGroup | None:
        """The group of a member as it was last appended."""
        slot = self.slots.get(group_of(transactional_id)) if len(self.slots) else None
        return None if slot is None else slot.newest

    def members_of(self, group: str) -> list[TransactionMetadata]:
        """The metadata of the group's members, by transactional id."""
        return [_known(slot) for slot in self._slots_of(group)]

    def admitted(self, ask: Init, members_max: int) -> Init:
        """`ask`, the InitProducerId of a member, with the timeout of its step.

        Raises PRODUCER_FENCED unless the step is open, INVALID_REQUEST if the step has `members_max` other members.
        """
        name = ask.transactional_id
        group = check_step(name, ask.group_epoch, self.newest(name))
        others = [txn for txn in self.members_of(group.name) if txn.group_epoch == group.epoch]
        if sum(txn.transactional_id != name for txn in others) >= members_max:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name}: step {group.epoch} of transaction group {group.name!r} has {members_max} members, the most "
                "that commit as one: let each of them do more",
            )
        return replace(ask, timeout_ms=group.timeout_ms)

    # --- decide, persist, apply, answer ---

    async def move(self, name: str, decide: DecideGroup, *, forgets: bool = False) -> TransactionGroupDecision:
        """Decide, persist, apply; then wait for the markers of the decision, for up to `hold_ms_max`.

        `forgets`: the decision may forget members, so it takes the locks of all of them.

        A caller that is cancelled changes nothing. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        UNKNOWN_SERVER_ERROR, and what `decide` raises: then nothing has changed.
        """
        task = get_running_loop().create_task(self._carry_out(name, decide, forgets))
        self._tasks[task] = None
        task.add_done_callback(self._done)
        await wait((task,))
        decision = task.result()
        await self._ended(name)
        return decision

    def _done(self, task: Task[TransactionGroupDecision]) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, KafkaError):  # the caller has the others, or was cancelled
            raise error  # a bug of ours: the loop's exception handler has it logged

    async def _carry_out(self, name: str, decide: DecideGroup, forgets: bool) -> TransactionGroupDecision:
        slot = await self.slots.enter(name)
        held: dict[str, TransactionSlot] = {}
        fresh_ids: dict[str, int] = {}
        decision: TransactionGroupDecision | None = None
        try:
            while decision is None:
                await self._lock_members(slot, held, forgets)
                members = {each.key: _known(each) for each in self._slots_of(name)}
                decision = await self._engine.decide(
                    partial(decide, slot.metadata, members),
                    fresh_ids,
                )
            if decision.then is None:
                self._check()
            else:
                if decision.then.state is OPEN:  # the next step begins
                    self._engine.check_room()
                await self._persist(slot, held, decision)
            return decision
        finally:
            for member in held.values():
                self._members.leave(member)
            self.slots.leave(slot)

    async def _lock_members(self, slot: GroupSlot, held: dict[str, TransactionSlot], every: bool) -> None:
        """Take the missing locks until none is missing: a member may come while this waits for a lock. `every`: also
        those of members that cannot open a transaction."""
        while missing := [
            member
            for member in self._slots_of(slot.key)
            if member.key not in held and (every or _may_be_open(_known(member), slot.metadata))
        ]:
            for member in missing:
                held[member.key] = await self._members.enter(member.key)

    async def _persist(
        self, slot: GroupSlot, held: dict[str, TransactionSlot], decision: TransactionGroupDecision
    ) -> None:
        """Store the decision, and put it into effect. Raises the errors of `Journal.append`."""
        then = decision.then
        assert then is not None
        assert all(txn.transactional_id in held for txn in decision.members), decision
        stored, members = self._append(then, decision.members)
        slot.newest = then
        if not stored.is_durable:
            await stored.durable()
        slot.apply(then)
        tell = self._log.info if then.note or then.state is DEAD else self._log.debug
        tell("transaction_group", group=then.name, epoch=then.epoch, state=then.state.label, note=then.note)
        for txn in members:
            self._apply_member(held[txn.transactional_id], txn)
            if txn.state is metadata.DEAD:
                held[txn.transactional_id].drop()

    def _append(
        self, then: TransactionGroup, members: Sequence[TransactionMetadata]
    ) -> tuple[JournalAppend, Sequence[TransactionMetadata]]:
        """Append the group's record and those of members as one batch; the members whose records were appended.

        One batch is what makes a commit atomic. Aborts need no such batch: once the group's record is stored, no
        request can commit them. So a step that has grown too large for a batch can still be aborted, record by record.
        The next sweep aborts a member whose own record is too large. Tombstones that are too large for one batch
        are refused: members must not outlive their group, whose steps would be counted anew.
        """
        try:
            return self._engine.append([group_row(then), *map(row_of, members)]), members
        except KafkaError as error:
            if error.code is not ErrorCode.RECORD_LIST_TOO_LARGE or then.state in (COMMITTED, DEAD):
                raise
        stored, appended = self._engine.append([group_row(then)]), []
        for txn in members:
            try:
                stored = self._engine.append([row_of(txn)])
                appended.append(txn)
            except KafkaError as error:
                self._log.error("member_not_aborted", transactional_id=txn.transactional_id, error=str(error))
        return stored, appended

    async def _ended(self, name: str) -> None:
        """Return once no member is being ended, or after `hold_ms_max`."""
        loop = get_running_loop()
        deadline = loop.time() + self._hold_s_max
        for member in self._slots_of(name):
            while member.is_being_ended and self._engine.closed is None and loop.time() < deadline:
                await wait((member.completion(),), timeout=deadline - loop.time())

    def _slots_of(self, group: str) -> list[TransactionSlot]:
        """The slots of the ids that were initialised as members of the group, by transactional id."""
        return [slot for slot in self._members.in_group(group) if slot.metadata is not None and slot.metadata.is_member]


def _known(slot: TransactionSlot) -> TransactionMetadata:
    assert slot.metadata is not None
    return slot.metadata


def _may_be_open(txn: TransactionMetadata, group: TransactionGroup | None) -> bool:
    """Whether this member has a transaction open, or may be opening one now."""
    in_step = group is not None and txn.group_epoch == group.epoch
    return txn.state is ONGOING or (in_step and not txn.is_prepared)
