"""PURE: limits the rate at which replicas that are not in sync catch up, to leave the network to those in sync.

A follower has one quota for all such replicas (`replication.quota.bytes.per.second`). A broker also has a rate for the
replicas that it leads, and one for those that it follows. Topics list the replicas to which these apply (KIP-73):
`leader.replication.throttled.rate` with `leader.replication.throttled.replicas`, and the same for `follower`. Fetches
of replicas in sync are never delayed and, unlike in Kafka, do not count.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from semel_broker.partitions.partition import Partition
    from semel_broker.replication.sessions import Watched
    from semel_broker.world import World


BURST_S = 1.0
"""Unused bytes of this time may be used later."""
WAIT_S_MAX = 1.0
"""A throttled replica is tried again after this time at the latest: the rate may have been altered."""
UNBOUNDED: Final = 2**63 - 1
"""The rate that stands for no limit, as in Kafka."""
ALL_REPLICAS: Final = "*"


class Throttle:
    """A limit of bytes per second; `rate` returns the current one. Rate 0 lets nothing through.

    One response may exceed it; the next one then waits until the average is met.
    """

    def __init__(self, rate: Callable[[], int], now: float) -> None:
        self._rate = rate
        self._credit = float(rate())
        self._since = now

    @property
    def is_bounded(self) -> bool:
        return self._rate() != UNBOUNDED

    def note(self, size: int, now: float) -> None:
        """`size` bytes were transferred."""
        if self.is_bounded:
            self._fill(now)
            self._credit -= size

    def wait_s(self, now: float) -> float:
        """Seconds until the next transfer is allowed, at the current rate; infinity at rate 0."""
        rate = self._rate()
        if rate == UNBOUNDED:
            self._credit = float(UNBOUNDED)
            return 0.0
        if rate == 0:
            return inf
        self._fill(now)
        return max(0.0, -self._credit / rate)

    def _fill(self, now: float) -> None:
        rate = self._rate()
        self._credit = min(self._credit + (now - self._since) * rate, rate * BURST_S)
        self._since = now


class ListedThrottle(Throttle):
    """A throttle for the replicas on broker `node_id` that topics list.

    `listed` returns the entries of a topic: "*" or "partition:broker".
    """

    def __init__(
        self, rate: Callable[[], int], now: float, *, node_id: int, listed: Callable[[str], tuple[str, ...]]
    ) -> None:
        super().__init__(rate, now)
        self._suffix = f":{node_id}"
        self._listed = listed
        self._sets: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}

    def applies_to(self, topic: str, index: int) -> bool:
        """Whether the topic lists this replica."""
        texts = self._listed(topic)
        if not texts:
            self._sets.pop(topic, None)
            return False
        known = self._sets.get(topic)
        if known is None or known[0] is not texts:
            known = self._sets[topic] = texts, frozenset(texts)
        return ALL_REPLICAS in known[1] or f"{index}{self._suffix}" in known[1]


class FollowerThrottle:
    """The quota and the listed rate together, for followers on this broker that are not in sync."""

    def __init__(self, quota: Throttle, listed: ListedThrottle) -> None:
        self._quota, self._listed = quota, listed

    @property
    def is_bounded(self) -> bool:
        return self._quota.is_bounded or self._listed.is_bounded

    def note(self, topic: str, index: int, size: int, now: float) -> None:
        """`size` bytes were fetched for this replica."""
        self._quota.note(size, now)
        if self._listed.is_bounded and self._listed.applies_to(topic, index):
            self._listed.note(size, now)

    def wait_s(self, topic: str, index: int, now: float) -> float:
        """Seconds until the replica may be fetched again."""
        rest_s = self._quota.wait_s(now)
        listed_s = self._listed.wait_s(now)
        if listed_s > rest_s and self._listed.applies_to(topic, index):
            rest_s = listed_s
        return rest_s


class LeaderThrottle:
    """Throttles the records that a leader sends to listed followers that are not in sync (KIP-73).

    One for all fetch sessions of a broker. A row that `holds` has held is marked again when it may continue.
    """

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
