"""Throttles the records that a leader sends to listed followers that are not in sync (KIP-73)."""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from typing import TYPE_CHECKING

from semel_broker.replication.throttle import WAIT_S_MAX, ListedThrottle

if TYPE_CHECKING:
    from semel_broker.partitions.partition import Partition
    from semel_broker.replication.sessions import Watched
    from semel_broker.world import World


class LeaderThrottle:
    """One for all fetch sessions of a broker. A row that `holds` has held is marked again when it may continue."""

    def __init__(self, throttle: ListedThrottle, world: World) -> None:
        self._throttle = throttle
        self._world = world
        self._held: dict[Watched, None] = {}
        self._timer: TimerHandle | None = None

    def holds(self, row: Watched, partition: Partition, replica: int) -> bool:
        """Whether the row must get no records now."""
        if row.offset >= partition.end_offset or not self._applies_to(partition, replica):
            return False
        wait_s = self._throttle.wait_s(self._world.monotonic())
        if wait_s <= 0:
            return False
        self._held[row] = None
        if self._timer is None:
            self._timer = get_running_loop().call_later(min(wait_s, WAIT_S_MAX), self._release_held)
        return True

    def note(self, partition: Partition, replica: int, size: int) -> None:
        """`size` bytes are sent to the replica."""
        if self._applies_to(partition, replica):
            self._throttle.note(size, self._world.monotonic())

    def close(self) -> None:
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _applies_to(self, partition: Partition, replica: int) -> bool:
        if not self._throttle.is_bounded or not self._throttle.applies_to(partition.topic, partition.index):
            return False
        return partition.replicas is not None and replica not in partition.replicas.isr

    def _release_held(self) -> None:
        self._timer = None
        held, self._held = self._held, {}
        for row in held:
            if row.partition is not None:  # else its session no longer has it
                row.release()
