"""The controller: one of the brokers at a time, who decides on leaders, admits brokers and ends reassignments.

Whoever first writes the key `controller` under its session holds the office; the others watch for the key to vanish.
Each of its writes expects that key at its own revision, so one that was paused, and does not know yet that it has been
succeeded, is refused by the store.

It decides on how things stand (`elections.settled`), for partitions that something has happened to: `_dirty`. A
partition is taken from there only when a look at the present image shows that nothing is to be done. So whatever is
refused, lost, or overtaken is simply decided again, and taking office is no more than everything being dirty.

An image that shows the office as one's own is at least as new as the beginning of it. Everything is decided in one turn
of the loop on one image; what has been written is waited for before the next decision.
"""

from __future__ import annotations

from asyncio import Event, Task, gather, get_running_loop, sleep, timeout, wait
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from semel_broker.cluster import elections, reassignments, records
from semel_broker.cluster.elections import Standing
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import PartitionView, Place, Touched
from semel_broker.cluster.records import ADMISSIONS, CONTROLLER, Admission, ControllerRecord
from semel_broker.cluster.registration import NOT_REGISTERED, Registration
from semel_broker.cluster.steps import Batch, Step, pack, tell
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
from semel_broker.world import World

RETRY_S: Final = 0.2
REFUSED_S: Final = 1.0
"""For the change because of which the store refused to be seen here; it is on its way."""
FAILED_S: Final = 1.0
TRANSACTIONS_AT_ONCE: Final = 4


class ControllerSettings(Protocol):
    """The settings that this file needs."""

    @property
    def auto_leader_rebalance_enable(self) -> bool: ...
    @property
    def leader_imbalance_check_interval_seconds(self) -> int: ...


class Controller:
    """One per broker; in office on one of them. `start`, then `close`."""

    def __init__(
        self, world: World, config: ControllerSettings, store: Store, feed: Feed, registration: Registration
    ) -> None:
        self._world = world
        self._config = config
        self._store = store
        self._feed = feed
        self._registration = registration
        self._office: Expect | None = None
        self._wake = Event()
        self._dirty: dict[Place, None] = {}
        self._all_dirty = True
        self._has_orphans = True
        self._rebalance_at = 0.0
        self._size_max = CHANGES_MAX
        self._task: Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller as far as it knows: the store knows better, and is asked each time."""
        return self._office is not None and self._holds(self._office)

    def start(self) -> None:
        """Stand for election, and again whenever the office was lost."""
        self._feed.listeners.append(self._on_touched)
        self._registration.on_registered.append(self._wake.set)
        self._registration.on_lost.append(self._wake.set)
        self._task = get_running_loop().create_task(self._run(), name="controller")

    async def close(self) -> None:
        """Decide nothing any more. The office ends with the broker's session."""
        if self._on_touched in self._feed.listeners:
            self._feed.listeners.remove(self._on_touched)
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await wait((self._task,))
        self._office = None

    # --- the office ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                self._office = office = await self._win()
                self._world.log.info("controller_elected", controller_epoch=office.revision)
                self._all_dirty = self._has_orphans = True
                self._size_max = CHANGES_MAX
                self._put_off_rebalance()
                await self._serve(office)
                self._world.log.info("controller_resigned", controller_epoch=office.revision)
            except StoreClosedError:
                return
            except Exception:  # a bug of ours: whoever came next in the office would have it too
                self._world.log.exception("controller_failed")
                await sleep(FAILED_S)
            finally:
                self._office = None

    async def _win(self) -> Expect:
        """Wait until this broker is the controller: the key, at the revision of its own."""
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

    def _holds(self, office: Expect) -> bool:
        there = self._feed.image.controller
        return self._registration.lease is not None and there is not None and there.revision == office.revision

    async def _serve(self, office: Expect) -> None:
        while self._holds(office):
            self._wake.clear()
            steps = self._decide()
            if not steps:
                await self._until_woken(self._rebalance_at - get_running_loop().time())
            elif not await self._write(office, steps):
                await self._until_woken(REFUSED_S)

    async def _until_woken(self, limit_s: float) -> None:
        try:
            async with timeout(max(0.0, limit_s)):
                await self._wake.wait()
        except TimeoutError:
            return

    def _on_touched(self, touched: Touched) -> None:
        if self._office is not None:
            self._dirty.update(touched.partitions)
            self._all_dirty |= bool(touched.brokers)
            self._has_orphans |= bool(touched.gone)
        self._wake.set()

    # --- deciding: no waiting in here ------------------------------------------------------------------------

    def _decide(self) -> Sequence[Step]:
        """What is to be written next, all of it true of the present image. Leaders come first. A broker is admitted
        when nothing is left to be taken from what it was before, but does not wait for anything else."""
        standing = Standing.of(self._feed.image)
        for look in (self._settle, self._admit, self._finish, self._sweep, self._rebalance):
            if steps := look(standing):
                return steps
        return ()

    def _settle(self, standing: Standing) -> Sequence[Step]:
        image = self._feed.image
        views: list[PartitionView]
        if self._all_dirty:
            views = list(image.contested())
        else:
            found = [image.partition(*place) for place in self._dirty]
            views = [view for view in found if view is not None]
            self._has_orphans |= len(views) < len(found)
        steps = list(elections.unsettled(views, standing))
        arrived = [view.place for view in views if reassignments.arrived(view, standing) is not None]
        self._all_dirty = False
        self._dirty = dict.fromkeys([*(place for step in steps for place in step.places), *arrived])
        return steps

    def _admit(self, _: Standing) -> Sequence[Step]:
        steps = []
        image = self._feed.image
        for kept in image.registered():
            broker, epoch = kept.value, kept.revision
            if not image.is_admitted(broker.node_id):
                admission = Admission(epoch=epoch, is_synced=broker.is_synced)
                step = Step(
                    expects=(Expect(records.broker_key(broker.node_id), epoch),),
                    changes=(Put(f"{ADMISSIONS}{broker.node_id}", msgspec.json.encode(admission)),),
                    what="broker_admitted",
                    facts={"broker": broker.node_id, "broker_epoch": epoch},
                )
                steps.append(step)
        return steps

    def _finish(self, standing: Standing) -> Sequence[Step]:
        """All is settled, so what is dirty still is where it was to go."""
        return reassignments.finish(self._feed.image, standing, list(self._dirty))

    def _sweep(self, _: Standing) -> Sequence[Step]:
        """What deleted topics have left in the store."""
        if not self._has_orphans:
            return ()
        orphans = self._feed.image.orphans()
        self._has_orphans = bool(orphans)
        return [Step(expects=(), changes=(Delete(key),), what="orphan_swept", facts={"key": key}) for key in orphans]

    def _rebalance(self, standing: Standing) -> Sequence[Step]:
        """Back to the preferred leaders, once in a while."""
        if get_running_loop().time() < self._rebalance_at:
            return ()
        self._put_off_rebalance()
        if not self._config.auto_leader_rebalance_enable:
            return ()
        return list(elections.preferred(self._feed.image.contested(), standing))

    def _put_off_rebalance(self) -> None:
        self._rebalance_at = get_running_loop().time() + self._config.leader_imbalance_check_interval_seconds

    # --- writing ---------------------------------------------------------------------------------------------

    async def _write(self, office: Expect, steps: Sequence[Step]) -> bool:
        """Write the steps, several transactions at a time; whether all were written. What was not is dirty still."""
        batches = list(pack(steps, self._size_max, (office,)))
        is_done = True
        for at in range(0, len(batches), TRANSACTIONS_AT_ONCE):
            done = await gather(*map(self._write_batch, batches[at : at + TRANSACTIONS_AT_ONCE]))
            is_done &= all(done)
            if not self._holds(office):
                return True  # nothing to wait for: the next look finds that the office is lost
        # One partition that changes all the time must not keep the others from being written.
        self._size_max = CHANGES_MAX if is_done else max(4, self._size_max // 2)
        return is_done

    async def _write_batch(self, batch: Batch) -> bool:
        if not await self._transact(batch.expects, batch.changes):
            return False
        tell(self._world.log, batch.steps)
        return True

    async def _transact(self, expects: Sequence[Expect], changes: Sequence[Put | Delete]) -> bool:
        """Write, and see it in the image; whether it was written for sure."""
        try:
            revision = await self._store.transact(expects, changes)
        except SessionEndedError:
            return False
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            self._world.log.warning("store_unavailable", doing="to decide", error=str(error))
            await sleep(RETRY_S)
            return False
        except StoreClosedError:
            raise
        except StoreError as error:
            self._world.log.error("store_refused", doing="to decide", error=str(error))
            await sleep(REFUSED_S)
            return False
        if revision is not None:
            await self._feed.reached(revision)
        return revision is not None
