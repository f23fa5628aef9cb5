"""PURE: the followers of a partition as its leader sees them: their offsets, the ISR and the high watermark.

The offset of a follower comes from its fetches: all records below it are as durable there as the setting `durability`
of the cluster asks. Kafka's rules (KIP-101, KIP-497, KIP-841, KIP-966): the high watermark is the lowest offset of the
replicas that are in sync or about to join. It does not move while fewer than min.insync.replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

UNKNOWN = -1


class Follower(msgspec.Struct):
    """A replica on another broker. Times are ms of a monotonic clock."""

    offset: int = UNKNOWN
    """It has all records below. UNKNOWN: it has not fetched in this leader epoch yet."""
    broker_epoch: int = UNKNOWN
    caught_up_ms: int = 0
    """When it was last at the end of the leader's log."""
    fetched_ms: int = 0
    """The time of its last fetch."""
    end_at_fetch: int = UNKNOWN
    """The end of the leader's log at its last fetch. A follower that reaches it had caught up then."""


class Replicas:
    """The replicas of one partition in one leader epoch."""

    def __init__(
        self, me: int, replicas: Sequence[int], isr: Sequence[int], *, epoch_start_offset: int, now_ms: int
    ) -> None:
        self.me = me
        self.epoch_start_offset = epoch_start_offset
        """The end of the leader's log when the epoch began. A follower with less may not join the ISR, also when it has
        reached the high watermark, which may still be behind.
        """
        self.isr = tuple(isr)
        """As the store has it, with the leader."""
        self._joining: tuple[int, ...] = ()
        self._followers: dict[int, Follower] = {}
        self.assign(replicas, now_ms)

    @property
    def followers(self) -> list[int]:
        """The broker ids of all replicas except the leader."""
        return list(self._followers)

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of each follower, UNKNOWN for those that have not fetched in this epoch."""
        return {each: follower.offset for each, follower in self._followers.items()}

    def assign(self, replicas: Sequence[int], now_ms: int) -> None:
        """Replace the set of replicas; the state of those that stay is kept."""
        known = self._followers
        fresh = {each: Follower(caught_up_ms=now_ms) for each in replicas if each != self.me}
        self._followers = {each: known.get(each, follower) for each, follower in fresh.items()}

    def note_fetch(self, replica: int, broker_epoch: int, offset: int, *, now_ms: int, end_offset: int) -> bool:
        """A follower fetches from `offset`: it has all records below. `end_offset` is that of the leader's log.

        False if the broker has no replica. A fetch with an older broker epoch than the last one changes nothing.
        """
        follower = self._followers.get(replica)
        if follower is None:
            return False
        if broker_epoch < follower.broker_epoch:
            return True
        if offset >= end_offset:
            follower.caught_up_ms = now_ms
        elif follower.end_at_fetch != UNKNOWN and offset >= follower.end_at_fetch:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.offset, follower.broker_epoch = offset, broker_epoch
        follower.fetched_ms, follower.end_at_fetch = now_ms, end_offset
        return True

    def high_watermark(self, own_offset: int, present: int, *, isr_min: int) -> int:
        """The high watermark to move to from `present`, if all records below `own_offset` are durable on the leader."""
        if len(self.isr) < isr_min:
            return present
        least = own_offset
        for each in (*self.isr, *self._joining):
            follower = self._followers.get(each)
            if follower is not None and follower.offset < least:
                least = follower.offset
        return max(present, least)

    def lagging(self, now_ms: int, lag_max_ms: int) -> list[int]:
        """The followers in the ISR that were last at the end of the log more than `lag_max_ms` ago."""
        return [
            each
            for each in self.isr
            if (follower := self._followers.get(each)) is not None and now_ms - follower.caught_up_ms > lag_max_ms
        ]

    def caught_up(self, high_watermark: int, now_ms: int, lag_max_ms: int) -> list[tuple[int, int]]:
        """(replica, broker epoch) of the followers that may join the ISR.

        A follower that has not fetched within `lag_max_ms` may not, also at the high watermark: it would lag at once.
        """
        least = max(high_watermark, self.epoch_start_offset)
        return [
            (each, follower.broker_epoch)
            for each, follower in self._followers.items()
            if each not in self.isr and follower.offset >= least and now_ms - follower.fetched_ms <= lag_max_ms
        ]

    def propose(self, isr: Sequence[int]) -> None:
        """The store will be asked for this ISR. The replicas that join count for the high watermark from now on.

        The store may accept at any time from now on, and then one of them may be elected.
        """
        assert self.me in isr, "the high watermark waits for the leader itself"
        self._joining = tuple(each for each in isr if each not in self.isr)

    def settled(self, isr: Sequence[int]) -> None:
        """The store has this ISR; no proposal is under way."""
        self.isr = tuple(isr)
        self._joining = ()

    @property
    def is_proposing(self) -> bool:
        """Whether a replica is about to join."""
        return bool(self._joining)


LEADER: Final = -1
"""`preferred_read_replica` of an answer that has records, or no nearer replica to name."""


def preferred_replica(replicas: Replicas, racks: Mapping[int, str], rack: str, offset: int) -> int:
    """The broker id of a follower to fetch from at `offset`, because it is nearer than the leader; or LEADER (KIP-392).

    As Kafka's RackAwareReplicaSelector: a replica in the rack of the consumer, in sync, with the offset that is asked
    for; of several the one with the most records. The leader itself, if it is in that rack, or if no follower fits.

    racks: broker id -> rack, of the brokers that consumers can reach now.
    """
    if not rack or racks.get(replicas.me) == rack:
        return LEADER
    offsets = replicas.offsets
    near = [each for each in replicas.isr if racks.get(each) == rack and offsets.get(each, -1) >= offset]
    return max(near, key=lambda each: (offsets[each], -each), default=LEADER)
