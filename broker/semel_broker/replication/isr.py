"""Keeps the ISR of each led partition: removes followers that lag, and adds followers that have caught up.

The store decides. A change is a compare-and-swap on the partition's state and on registrations. It expects the
registration of this broker, so a leader whose session has ended changes nothing. It expects the registration of each
joining broker as named in its fetches, so a restarted broker does not join with a former registration (KIP-841). A
joining follower counts for the high watermark before the request is sent, because the store may accept it at any time
from then on.
"""

from __future__ import annotations

from asyncio import Event, Task, get_running_loop, sleep, wait
from collections.abc import Sequence
from typing import Final

import msgspec
from semel_protocol.backoff import Backoff

from semel_broker.cluster import records
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import PartitionView
from semel_broker.cluster.records import PartitionState
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import (
    CHANGES_MAX,
    Expect,
    OutcomeUnknownError,
    Put,
    Store,
    StoreClosedError,
    StoreUnavailableError,
)
from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.partition import Partition
from semel_broker.partitions.replicas import Replicas
from semel_broker.replication.peers import RETRY_MS_MAX, RETRY_MS_MIN
from semel_broker.world import World

BATCH: Final = CHANGES_MAX // 2
"""Partitions in one transaction; each checks its own key, and all check some registrations."""
CHECKS_PER_LAG: Final = 4


class Proposal(msgspec.Struct, frozen=True):
    """A proposed ISR, to be written to the store. `joining`: (replica, broker epoch)."""

    partition: Partition
    replicas: Replicas
    view: PartitionView
    isr: list[int]
    joining: list[tuple[int, int]]


class IsrKeeper:
    """One per broker. Call `check` with all led partitions every `interval_s`, and `follower_fetched` at each fetch."""

    def __init__(
        self, world: World, config: BrokerConfig, store: Store, feed: Feed, registration: Registration
    ) -> None:
        self._world = world
        self._config = config
        self._store = store
        self._feed = feed
        self._registration = registration
        self._due: dict[Partition, None] = {}
        self._under_way: dict[Partition, None] = {}
        self._has_work = Event()
        self._task: Task[None] | None = None

    @property
    def interval_s(self) -> float:
        """Seconds between two calls of `check`."""
        return self._config.replica_lag_time_max_ms / 1000 / CHECKS_PER_LAG

    def start(self) -> None:
        self._task = get_running_loop().create_task(self._run(), name="isr keeper")

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await wait((self._task,))

    # --- deciding --------------------------------------------------------------------------------------------

    def follower_fetched(self, partition: Partition, replica: int) -> None:
        """A follower has fetched: if it is not in the ISR, check whether it may join."""
        replicas = partition.replicas
        if replicas is not None and replica not in replicas.isr:
            self._consider(partition)

    def check(self, partitions: Sequence[Partition]) -> None:
        """Find followers that lag, and followers that have caught up without a further fetch."""
        for partition in partitions:
            if partition.is_leading and partition.replicas is not None:
                self._consider(partition)

    def _consider(self, partition: Partition) -> None:
        if partition not in self._under_way and partition not in self._due and self._decide(partition) is not None:
            self._due[partition] = None
            self._has_work.set()

    def _decide(self, partition: Partition) -> Proposal | None:
        """The ISR that the partition needs now; None if it has it."""
        replicas = partition.replicas
        view = self._feed.image.partition(partition.topic_id, partition.index)
        if replicas is None or view is None or partition.is_retired or not partition.is_leading:
            return None
        state = view.state
        if (state.leader, state.leader_epoch) != (self._config.node_id, partition.leader_epoch):
            return None  # the image is ahead: the partition is updated soon
        now_ms = int(self._world.monotonic() * 1000)
        lag_max_ms = self._config.replica_lag_time_max_ms
        lagging = replicas.lagging(now_ms, lag_max_ms)
        joining = [
            (replica, epoch)
            for replica, epoch in replicas.caught_up(partition.high_watermark, now_ms, lag_max_ms)
            if replica in view.replicas and self._may_join(replica, epoch, view)
        ]
        isr = [*(each for each in state.isr if each not in lagging), *(replica for replica, _ in joining)]
        if isr == state.isr:
            return None
        return Proposal(partition, replicas, view, isr, joining)

    def _may_join(self, replica: int, epoch: int, view: PartitionView) -> bool:
        """Whether the broker is admitted under the registration that has fetched, is not leaving, and can use its
        files and its disk."""
        image = self._feed.image
        stored = image.registration(replica)
        is_it = stored is not None and stored.revision == epoch and image.is_admitted(replica)
        has_files = not image.is_offline(replica, view.place) and not image.hangs(replica)
        return is_it and not image.is_leaving(replica) and has_files

    # --- writing ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(self._world.rng, RETRY_MS_MIN, RETRY_MS_MAX)
        while True:
            await self._has_work.wait()
            due = list(self._due)[:BATCH]
            for partition in due:
                del self._due[partition]
            if not self._due:
                self._has_work.clear()
            try:
                proposals = [proposal for partition in due if (proposal := self._decide(partition)) is not None]
                if proposals and self._registration.is_valid():
                    await self._propose(proposals)
                backoff.reset()
            except StoreClosedError:
                return
            except StoreUnavailableError as error:
                self._world.log.warning("isr_not_changed", partitions=len(due), error=str(error))
                await sleep(backoff.next_ms() / 1000)
            except Exception:  # a bug of semel, or a store that refuses; the next check decides again
                self._world.log.exception("isr_keeper_failed", partitions=len(due))
                await sleep(backoff.next_ms() / 1000)

    async def _propose(self, proposals: list[Proposal]) -> None:
        for proposal in proposals:
            self._under_way[proposal.partition] = None
            proposal.replicas.propose(proposal.isr)
        try:
            if await self._write(proposals):
                return
            for proposal in proposals:  # one of them has changed in the store: try each alone
                if len(proposals) == 1 or not await self._write([proposal]):
                    await self._catch_up(proposal)
        finally:
            for proposal in proposals:
                del self._under_way[proposal.partition]
                self._settle(proposal)

    async def _write(self, proposals: list[Proposal]) -> bool:
        """Write the proposals; False if an expectation failed. Raises StoreUnavailableError if nothing was written."""
        expects = {f"{records.BROKERS}{self._config.node_id}": self._registration.epoch}
        for proposal in proposals:
            expects |= {f"{records.BROKERS}{replica}": epoch for replica, epoch in proposal.joining}
            expects[proposal.view.key] = proposal.view.revision
        puts = []
        for proposal in proposals:
            state = PartitionState(proposal.view.state.leader, proposal.view.state.leader_epoch, proposal.isr)
            puts.append(Put(proposal.view.key, msgspec.json.encode(state)))
        revision = await self._transact([Expect(key, revision) for key, revision in expects.items()], puts)
        if revision is None:
            return False
        await self._feed.reached(revision)  # then the partitions that are still led have the change
        for proposal in proposals:
            self._world.log.info(
                "isr_changed",
                topic=proposal.view.topic,
                partition=proposal.view.index,
                isr=proposal.isr,
                before=proposal.view.state.isr,
            )
        return True

    async def _transact(self, expects: list[Expect], puts: list[Put]) -> int | None:
        """Send a transaction again while its outcome is unknown: both expect the same state, at most one succeeds."""
        backoff = Backoff(self._world.rng, RETRY_MS_MIN, RETRY_MS_MAX)
        while True:
            try:
                return await self._store.transact(expects, puts)
            except OutcomeUnknownError as error:
                self._world.log.warning("isr_change_unknown", partitions=len(puts), error=str(error))
                await sleep(backoff.next_ms() / 1000)

    async def _catch_up(self, proposal: Proposal) -> None:
        """Wait until the image has the current state: another change came first, perhaps an own unanswered one."""
        entry = await self._store.get(proposal.view.key)
        if entry is not None:
            await self._feed.reached(entry.revision)

    def _settle(self, proposal: Proposal) -> None:
        """The proposal has ended: the ISR is that of the image."""
        view = self._feed.image.partition(proposal.partition.topic_id, proposal.partition.index)
        if view is not None and proposal.partition.replicas is proposal.replicas:
            proposal.partition.update_isr(view.state.isr)
