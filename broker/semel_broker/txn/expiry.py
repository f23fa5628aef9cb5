"""Aborts transactions that are open for too long, and forgets ids that are unused for too long.

Two sweeps, at the intervals of Kafka's settings. `state` decides which transactions are due, and `group_state` which
steps of groups. Each decides again with the lock of the id or the group, so a commit that came first wins.
"""

from __future__ import annotations

from asyncio import Task, TimerHandle, get_running_loop, wait
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import BrokerConfig
from semel_broker.txn.model import group_state, state
from semel_broker.txn.shard import TransactionShard
from semel_broker.txn.slot import TransactionSlot
from semel_broker.txn.transaction_groups import TransactionGroups
from semel_broker.world import World

FORGET_AT_ONCE = 1_000
"""The most ids whose tombstones are written as one batch."""


class Expiry:
    """Sweeps the shards of `shards()`, which can answer now. `time_out(id)` ends one transaction that is due, `groups`
    the step of a group."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        shards: Callable[[], list[TransactionShard]],
        time_out: Callable[[str], Awaitable[None]],
        groups: TransactionGroups,
    ) -> None:
        self._world = world
        self._config = config
        self._shards = shards
        self._time_out = time_out
        self._groups = groups
        self._timers: dict[TimerHandle, None] = {}
        self._tasks: dict[Task[None], None] = {}
        self._aborting: dict[str, None] = {}
        self._deciding: dict[str, None] = {}  # groups
        self._stopped = False

    def start(self) -> None:
        """Start both sweeps."""
        self._every(lambda: self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_due)
        self._every(lambda: self._config.transaction_remove_expired_transaction_cleanup_interval_ms, self.forget_due)

    def stop(self) -> None:
        """Stop both sweeps."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    async def stopped(self) -> None:
        """Return once all work that the sweeps began is done."""
        if self._tasks:
            await wait(list(self._tasks))

    def abort_due(self) -> None:
        """Start to abort the transactions that are open for too long."""
        now_ms = self._world.now_ms()
        for shard in self._shards():
            for slot in shard.slots:
                txn = slot.metadata
                if txn is None or txn.transactional_id in self._aborting:
                    continue
                if state.is_timed_out(txn, now_ms, shard.groups.newest(txn.transactional_id)):
                    self._aborting[txn.transactional_id] = None
                    self._spawn(self._abort(txn.transactional_id))
            for group in shard.groups.known():
                if group_state.is_timed_out(group, shard.groups.members_of(group.name), now_ms):
                    self._decide(group.name, self._groups.time_out(group.name), "timed_out_not_aborted")

    def forget_due(self) -> None:
        """Start to forget the ids that are unused for too long. The next sweep looks again at an id whose lock is
        taken."""
        now_ms, expiration_ms = self._world.now_ms(), self._config.transactional_id_expiration_ms
        groups_ms = self._config.transaction_group_expiration_ms
        for shard in self._shards():
            due = [
                slot
                for slot in shard.slots
                if slot.metadata is not None
                and state.is_expired(slot.metadata, now_ms, expiration_ms)
                and slot.lock.take()
            ]
            if due:
                self._spawn(self._forget(shard, due))
            for group in shard.groups.known():
                if group_state.is_expired(group, shard.groups.members_of(group.name), now_ms, groups_ms):
                    self._decide(group.name, self._groups.expire(group.name), "expired_not_forgotten")

    # --- inside ---

    async def _abort(self, transactional_id: str) -> None:
        try:
            await self._time_out(transactional_id)
        except KafkaError as error:
            if not self._stopped:  # the next sweep tries again, or after a stop the next start
                self._tell(error, "timed_out_not_aborted", transactional_id=transactional_id)
        finally:
            del self._aborting[transactional_id]

    async def _forget(self, shard: TransactionShard, due: Sequence[TransactionSlot]) -> None:
        try:
            for at in range(0, len(due), FORGET_AT_ONCE):
                await shard.forget(due[at : at + FORGET_AT_ONCE])
        except KafkaError as error:
            if not self._stopped:
                self._tell(error, "expired_not_forgotten", partition=shard.index)
        finally:
            for slot in due:
                shard.slots.leave(slot)

    def _decide(self, group: str, work: Coroutine[Any, Any, None], not_done: str) -> None:
        async def decide() -> None:
            try:
                await work
            except KafkaError as error:
                if not self._stopped:
                    self._tell(error, not_done, group=group)
            finally:
                del self._deciding[group]

        if group in self._deciding:
            work.close()
            return
        self._deciding[group] = None
        self._spawn(decide())

    def _tell(self, error: KafkaError, event: str, **fields: object) -> None:
        """Log an error, or less: info if another broker continues, a warning if the append waits for replicas."""
        log = self._world.log
        tell = {ErrorCode.NOT_COORDINATOR: log.info, ErrorCode.COORDINATOR_NOT_AVAILABLE: log.warning}
        tell.get(error.code, log.error)(event, error=str(error), **fields)

    def _every(self, interval_ms: Callable[[], int], act: Callable[[], None]) -> None:
        def due() -> None:
            self._every(interval_ms, act)
            act()

        self._after(interval_ms(), due)

    def _after(self, delay_ms: int, act: Callable[[], None]) -> None:
        if self._stopped:
            return

        def ring() -> None:
            del self._timers[timer]
            act()

        timer = get_running_loop().call_later(delay_ms / 1000, ring)
        self._timers[timer] = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a bug of ours: the loop's exception handler has it logged
