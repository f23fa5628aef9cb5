"""Decide, persist, apply, answer, for a transaction group and its members together.

One at a time decides about a group. It holds the turns of all members that may have something open while it decides and
until that is durable: one append, all or nothing. Members that are being ended are nobody's to change, so their turns
are not waited for; nor are those of members of earlier steps, which cannot open anything any more.

No member ever waits for its group's turn, so whoever has that may wait for theirs.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, shield, wait
from collections.abc import Callable, Sequence

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.coordination.journal import Journal, Stored
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.txn.engine import Engine
from semel_broker.txn.group_slots import GroupSlot, GroupSlots
from semel_broker.txn.model.group_metadata import COMMITTED, DEAD, TransactionGroup
from semel_broker.txn.model.group_records import group_row
from semel_broker.txn.model.group_state import Decision, Members
from semel_broker.txn.model.metadata import ONGOING, TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.requests import NeedsProducerIdError
from semel_broker.txn.slots import Slot, Slots
from semel_broker.world import World

DecideGroup = Callable[[TransactionGroup | None, Members, int, Sequence[int]], Decision]
"""(what is known, the members, now in ms, fresh producer ids) -> what to do."""


class GroupEngine:
    """Moves the transaction groups of one partition. `engine` moves the members. `check` raises NOT_COORDINATOR unless
    this broker coordinates them; `hold_ms_max`: how long the answer waits for markers."""

    def __init__(
        self,
        world: World,
        groups: GroupSlots,
        slots: Slots,
        journal: Journal,
        engine: Engine,
        producer_ids: ProducerIds,
        *,
        check: Callable[[], None],
        hold_ms_max: int,
    ) -> None:
        self._world = world
        self._log = world.log
        self._groups = groups
        self._slots = slots
        self._journal = journal
        self._engine = engine
        self._producer_ids = producer_ids
        self._check = check
        self._hold_s_max = hold_ms_max / 1000
        self._tasks: dict[Task[Decision], None] = {}

    async def move(self, name: str, decide: DecideGroup) -> Decision:
        """Decide, persist, apply; then wait for the markers of what was decided, for a while. Whoever gives up waiting
        changes nothing. Raises KafkaError 15, 16, -1, and what `decide` raises: then nothing has changed."""
        task = get_running_loop().create_task(self._carry_out(name, decide))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        decision = await shield(task)
        await self._ended(name)
        return decision

    async def _carry_out(self, name: str, decide: DecideGroup) -> Decision:
        slot = await self._groups.enter(name)
        held: dict[str, Slot] = {}
        fresh_ids: list[int] = []
        try:
            while True:
                await self._hold_members(slot, held)
                members = {each.transactional_id: _known(each) for each in self._slots.members(name)}
                try:
                    decision = decide(slot.metadata, members, self._world.now_ms(), fresh_ids)
                except NeedsProducerIdError:
                    fresh_ids.append(await self._producer_ids.next())
                    continue
                except KafkaError:
                    self._check()  # it may have taken a while to get here: a refusal is an answer, too
                    raise
                if decision.then is None:
                    self._check()
                else:
                    await self._persist(slot, held, decision)
                return decision
        finally:
            for member in held.values():
                self._slots.leave(member)
            self._groups.leave(slot)

    async def _hold_members(self, slot: GroupSlot, held: dict[str, Slot]) -> None:
        """Take the turns that are missing, until none is: who waits for one may find more."""
        while missing := [
            member
            for member in self._slots.members(slot.name)
            if member.transactional_id not in held and _may_be_open(_known(member), slot.metadata)
        ]:
            for member in missing:
                held[member.transactional_id] = await self._slots.enter(member.transactional_id)

    async def _persist(self, slot: GroupSlot, held: dict[str, Slot], decision: Decision) -> None:
        """Store the decision, and have it take effect. Raises KafkaError 15, 16, 18, -1."""
        then = decision.then
        assert then is not None
        assert all(txn.transactional_id in held for txn in decision.members), decision
        self._engine.check_open()
        stored, members = self._append(then, decision.members)
        slot.newest = then
        if not stored.is_durable:
            await stored.durable()
        slot.apply(then)
        if then.state is DEAD:
            slot.drop()
        tell = self._log.info if then.note or then.state is DEAD else self._log.debug
        tell("transaction_group", group=then.name, epoch=then.epoch, state=then.state.label, note=then.note)
        for txn in members:
            self._engine.apply(held[txn.transactional_id], txn)

    def _append(
        self, then: TransactionGroup, members: Sequence[TransactionMetadata]
    ) -> tuple[Stored, Sequence[TransactionMetadata]]:
        """In one batch, which is what makes a commit one; and what was appended. Aborts need not be one: once the
        group's record is there nobody can commit them. So a step that has grown too large for a batch can still be got
        rid of; what cannot be appended even so is left to the next sweep."""
        try:
            return self._journal.append([group_row(then), *map(row_of, members)]), members
        except KafkaError as error:
            if error.code is not ErrorCode.RECORD_LIST_TOO_LARGE or then.state is COMMITTED:
                raise
        stored, appended = self._journal.append([group_row(then)]), []
        for txn in members:
            try:
                stored = self._journal.append([row_of(txn)])
                appended.append(txn)
            except KafkaError as error:
                self._log.error("member_not_aborted", transactional_id=txn.transactional_id, error=str(error))
        return stored, appended

    async def _ended(self, name: str) -> None:
        """Return once nothing of the group is being ended, or when that takes too long."""
        loop = get_running_loop()
        deadline = loop.time() + self._hold_s_max
        for member in self._slots.members(name):
            while member.is_being_ended and not self._engine.is_closed and loop.time() < deadline:
                await wait((member.completion(),), timeout=deadline - loop.time())


def _known(slot: Slot) -> TransactionMetadata:
    assert slot.metadata is not None
    return slot.metadata


def _may_be_open(txn: TransactionMetadata, group: TransactionGroup | None) -> bool:
    """Whether a transaction of this member is open, or is perhaps being opened right now."""
    in_step = group is not None and txn.group_epoch == group.epoch
    return txn.state is ONGOING or (in_step and not txn.is_prepared)
