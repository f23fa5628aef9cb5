"""PURE: how fast replicas that are not in sync may catch up, so that they leave the network to those that are.

A follower has a quota for all of them (`replication.quota.bytes.per.second`). Besides, a broker has a rate for the
replicas that it leads and one for those that it follows, and topics list the replicas that these are about (KIP-73):
`leader.replication.throttled.rate` with `leader.replication.throttled.replicas`, and the same for `follower`. What
replicas in sync fetch is never held back, and, unlike in Kafka, does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

BURST_S = 1.0
"""What was not used is kept for so long."""
WAIT_S_MAX = 1.0
"""A replica that is held back is looked at again after so long: the rate may have been altered."""
UNBOUNDED: Final = 2**63 - 1
"""The rate that is none, as in Kafka."""
ALL_REPLICAS: Final = "*"


class Throttle:
    """`rate` tells the bytes per second, as they are now. One answer may go beyond them; then it takes its time until
    the next one. At 0 there is none at all."""

    def __init__(self, rate: Callable[[], int], now: float) -> None:
        self._rate = rate
        self._credit = float(rate())
        self._since = now

    @property
    def is_bounded(self) -> bool:
        return self._rate() != UNBOUNDED

    def note(self, size: int, now: float) -> None:
        """So many bytes have come."""
        if self.is_bounded:
            self._fill(now)
            self._credit -= size

    def wait_s(self, now: float) -> float:
        """For how long there should be no more, if the rate stays as it is."""
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
    """A throttle of those replicas on broker `node_id` that their topics list. `listed`: what a topic lists, "*" or
    partition:broker."""

    def __init__(
        self, rate: Callable[[], int], now: float, *, node_id: int, listed: Callable[[str], tuple[str, ...]]
    ) -> None:
        super().__init__(rate, now)
        self._suffix = f":{node_id}"
        self._listed = listed
        self._sets: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}

    def applies_to(self, topic: str, index: int) -> bool:
        """Whether it is about this replica."""
        texts = self._listed(topic)
        if not texts:
            self._sets.pop(topic, None)
            return False
        known = self._sets.get(topic)
        if known is None or known[0] is not texts:
            known = self._sets[topic] = texts, frozenset(texts)
        return ALL_REPLICAS in known[1] or f"{index}{self._suffix}" in known[1]


class FollowerThrottle:
    """Both bounds of what comes to replicas here that are not in sync."""

    def __init__(self, quota: Throttle, listed: ListedThrottle) -> None:
        self._quota, self._listed = quota, listed

    @property
    def is_bounded(self) -> bool:
        return self._quota.is_bounded or self._listed.is_bounded

    def note(self, topic: str, index: int, size: int, now: float) -> None:
        """So many bytes have come for this replica."""
        self._quota.note(size, now)
        if self._listed.is_bounded and self._listed.applies_to(topic, index):
            self._listed.note(size, now)

    def wait_s(self, topic: str, index: int, now: float) -> float:
        """For how long nothing more should be asked for it."""
        rest_s = self._quota.wait_s(now)
        listed_s = self._listed.wait_s(now)
        if listed_s > rest_s and self._listed.applies_to(topic, index):
            rest_s = listed_s
        return rest_s
