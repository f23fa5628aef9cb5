"""The controller: the one broker that elects leaders, admits brokers and ends reassignments.

The broker that first writes the key `controller` under its session is the controller. The others watch until the key is
removed. Each write of the controller expects that key at its own revision. So the store refuses a controller that was
paused and does not know that it has a successor.

The controller decides on the current state (`elections.settled`), for the partitions in `_dirty`: those that a change
concerns. A partition leaves `_dirty` only when the current image shows that nothing has to be written for it. So a
write that was refused or lost is decided again, and a new controller begins with all partitions dirty.

An image that shows this broker as the controller is at least as new as its election. One decision is made in one turn
of the loop, on one image. The next decision waits until the image shows what was written.
"""

from __future__ import annotations

from asyncio import Event, Task, gather, get_running_loop, sleep, timeout, wait
from collections.abc import Sequence
from typing import Final

import msgspec

from semel_broker.cluster import elections, reassignments, records
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta, PartitionView, Place
from semel_broker.cluster.records import ADMISSIONS, CONTROLLER, BrokerAdmission, ControllerRecord
from semel_broker.cluster.registration import NOT_REGISTERED, Registration
from semel_broker.cluster.steps import Step, StepBatch, log_steps, pack
from semel_broker.cluster.store import (
    CHANGES_MAX,
    Delete,
    Expect,
    OutcomeUnknownError,
    Put,
    SessionEndedError,
    Store,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from semel_broker.config.loading import BrokerConfig
from semel_broker.world import World

RETRY_S: Final = 0.2
REFUSED_S: Final = 1.0
"""Time for the image to show the change because of which the store refused a write."""
FAILED_S: Final = 1.0
TRANSACTIONS_AT_ONCE: Final = 4


class Controller:
    """One per broker; active on one of them. `start`, then `close`."""

    def __init__(
        self, world: World, config: BrokerConfig, store: Store, feed: Feed, registration: Registration
    ) -> None:
        self._world = world
        self._config = config
        self._store = store
        self._feed = feed
        self._registration = registration
        self._note = world.log.info if config.is_clustered else world.log.debug  # alone, it decides for no other broker
        self._term: Expect | None = None
        self._wake = Event()
        self._dirty: dict[Place, None] = {}
        self._all_dirty = True
        self._may_have_orphans = True
        self._rebalance_at = 0.0
        self._size_max = CHANGES_MAX
        self._task: Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker's image shows it as the controller. The store checks this again at each write."""
        return self._term is not None and self._holds(self._term)

    def start(self) -> None:
        """Try to become the controller now, and again each time the key `controller` is removed."""
        self._feed.listeners.append(self._on_image_changed)
        self._registration.on_registered.append(self._wake.set)
        self._registration.on_lost.append(self._wake.set)
        self._task = get_running_loop().create_task(self._run(), name="controller")

    async def close(self) -> None:
        """Stop deciding. The key `controller` is removed with the broker's session."""
        if self._on_image_changed in self._feed.listeners:
            self._feed.listeners.remove(self._on_image_changed)
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await wait((self._task,))
        self._term = None

    # --- election ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                self._term = term = await self._win()
                self._note("controller_elected", controller_epoch=term.revision)
                self._all_dirty = self._may_have_orphans = True
                self._size_max = CHANGES_MAX
                self._schedule_rebalance()
                await self._serve(term)
                self._note("controller_resigned", controller_epoch=term.revision)
            except StoreClosedError:
                return
            except Exception:  # a bug of semel: the next controller would have it too
                self._world.log.exception("controller_failed")
                await sleep(FAILED_S)
            finally:
                self._term = None

    async def _win(self) -> Expect:
        """Wait until this broker is the controller. Returns the expectation that holds while it is."""
        image, registration = self._feed.image, self._registration
        while True:
            self._wake.clear()
            lease, epoch = registration.lease, registration.epoch
            mine = ControllerRecord(registration.node_id, epoch)
            if image.controller is not None and image.controller.value == mine and lease is not None:
                return Expect(CONTROLLER, image.controller.revision)
            if image.controller is None and lease is not None and epoch != NOT_REGISTERED:
                expects = [Expect(CONTROLLER), Expect(records.broker_key(registration.node_id), epoch)]
                if await self._transact(expects, [Put(CONTROLLER, msgspec.json.encode(mine), lease)]):
                    continue
            await self._wake.wait()

    def _holds(self, term: Expect) -> bool:
        there = self._feed.image.controller
        return self._registration.lease is not None and there is not None and there.revision == term.revision

    async def _serve(self, term: Expect) -> None:
        while self._holds(term):
            self._wake.clear()
            steps = self._decide()
            if not steps:
                await self._until_woken(self._rebalance_at - get_running_loop().time())
            elif not await self._write(term, steps):
                await self._until_woken(REFUSED_S)

    async def _until_woken(self, limit_s: float) -> None:
        try:
            async with timeout(max(0.0, limit_s)):
                await self._wake.wait()
        except TimeoutError:
            return

    def _on_image_changed(self, delta: ImageDelta) -> None:
        if self._term is not None:
            self._dirty.update(delta.partitions)
            self._all_dirty |= bool(delta.brokers)
            self._may_have_orphans |= bool(delta.gone)
        self._wake.set()

    # --- deciding: no waiting in here ------------------------------------------------------------------------

    def _decide(self) -> Sequence[Step]:
        """The steps to write next, for the current image.

        Elections come first: they remove a broker that has registered again from leaderships and ISRs. Then the broker
        is admitted. Its admission waits for nothing else.
        """
        brokers = BrokerStates.of(self._feed.image)
        for look in (self._settle, self._admit, self._finish, self._sweep, self._rebalance):
            if steps := look(brokers):
                return steps
        return ()

    def _settle(self, brokers: BrokerStates) -> Sequence[Step]:
        image = self._feed.image
        views: list[PartitionView]
        if self._all_dirty:
            views = list(image.electable())
        else:
            found = [image.partition(*place) for place in self._dirty]
            self._may_have_orphans |= None in found
            views = [view for view in found if view is not None and image.is_electable(view)]
        steps = list(elections.unsettled(views, brokers))
        arrived = [view.place for view in views if reassignments.arrived(view, brokers) is not None]
        self._all_dirty = False
        self._dirty = dict.fromkeys([*(place for step in steps for place in step.places), *arrived])
        return steps

    def _admit(self, _: BrokerStates) -> Sequence[Step]:
        steps = []
        image = self._feed.image
        for stored in image.registered():
            broker, epoch = stored.value, stored.revision
            if not image.is_admitted(broker.node_id):
                admission = BrokerAdmission(epoch=epoch, is_synced=broker.is_synced)
                step = Step(
                    expects=(Expect(records.broker_key(broker.node_id), epoch),),
                    changes=(Put(f"{ADMISSIONS}{broker.node_id}", msgspec.json.encode(admission)),),
                    what="broker_admitted",
                    facts={"broker": broker.node_id, "broker_epoch": epoch},
                )
                steps.append(step)
        return steps

    def _finish(self, brokers: BrokerStates) -> Sequence[Step]:
        """End the reassignments that are complete. All partitions are settled here, so only these are dirty."""
        return reassignments.finish(self._feed.image, brokers, list(self._dirty))

    def _sweep(self, _: BrokerStates) -> Sequence[Step]:
        """Remove the partition states and reassignments that deleted topics have left in the store."""
        if not self._may_have_orphans:
            return ()
        orphans = self._feed.image.orphans()
        self._may_have_orphans = bool(orphans)
        return [Step(expects=(), changes=(Delete(key),), what="orphan_removed", facts={"key": key}) for key in orphans]

    def _rebalance(self, brokers: BrokerStates) -> Sequence[Step]:
        """Elect preferred leaders, at the interval of the setting."""
        if get_running_loop().time() < self._rebalance_at:
            return ()
        self._schedule_rebalance()
        if not self._config.auto_leader_rebalance_enable:
            return ()
        return list(elections.preferred(self._feed.image.electable(), brokers))

    def _schedule_rebalance(self) -> None:
        self._rebalance_at = get_running_loop().time() + self._config.leader_imbalance_check_interval_seconds

    # --- writing ---------------------------------------------------------------------------------------------

    async def _write(self, term: Expect, steps: Sequence[Step]) -> bool:
        """Write the steps, several transactions at a time. Returns whether all were written; others stay dirty."""
        batches = list(pack(steps, self._size_max, (term,)))
        is_done = True
        for at in range(0, len(batches), TRANSACTIONS_AT_ONCE):
            done = await gather(*map(self._write_batch, batches[at : at + TRANSACTIONS_AT_ONCE]))
            is_done &= all(done)
            if not self._holds(term):
                return True  # no reason to wait: the caller finds that this broker is no longer the controller
        # A partition that keeps changing makes its transactions fail. Smaller transactions let the others succeed.
        self._size_max = CHANGES_MAX if is_done else max(4, self._size_max // 2)
        return is_done

    async def _write_batch(self, batch: StepBatch) -> bool:
        if not await self._transact(batch.expects, batch.changes):
            return False
        log_steps(self._note, batch.steps)
        return True

    async def _transact(self, expects: Sequence[Expect], changes: Sequence[Put | Delete]) -> bool:
        """Write a transaction and wait until the image shows it. Returns whether it is known to be written."""
        try:
            revision = await self._store.transact(expects, changes)
        except SessionEndedError:
            return False
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            self._world.log.warning("store_unavailable", action="decide", error=str(error))
            await sleep(RETRY_S)
            return False
        except StoreClosedError:
            raise
        except StoreError as error:
            self._world.log.error("store_refused", action="decide", error=str(error))
            await sleep(REFUSED_S)
            return False
        if revision is not None:
            await self._feed.reached(revision)
        return revision is not None
