"""PURE: where the followers of a partition stand, as its leader sees it: the high watermark, and who is in sync.

A follower's offset is what it says in its fetches: everything below it is as durable there as the cluster's setting
`durability` asks. Kafka's rules (KIP-101, KIP-497, KIP-841, KIP-966): the high watermark is the least offset of those
in sync, and of those about to be; it stays where it is while fewer than min.insync.replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

UNKNOWN = -1


class Follower(msgspec.Struct):
    """A replica elsewhere. `offset` UNKNOWN: it has not fetched in this leader epoch yet. Times in ms, of a clock that
    never goes back."""

    offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_ms: int = 0
    fetched_ms: int = 0
    end_at_fetch: int = UNKNOWN


class Replicas:
    """The replicas of one partition in one leader epoch. `isr`: those in sync as the store has it, the leader included.

    `epoch_start_offset`: the end of the leader's log when the epoch began; who has less is not in sync whatever the
    high watermark, which may be behind for now.
    """

    def __init__(
        self, me: int, replicas: Sequence[int], isr: Sequence[int], *, epoch_start_offset: int, now_ms: int
    ) -> None:
        self.me = me
        self.epoch_start_offset = epoch_start_offset
        self.isr = tuple(isr)
        self._joining: tuple[int, ...] = ()
        self._followers: dict[int, Follower] = {}
        self.assign(replicas, now_ms)

    @property
    def followers(self) -> list[int]:
        """All replicas but the leader."""
        return list(self._followers)

    @property
    def offsets(self) -> dict[int, int]:
        """What each follower has, UNKNOWN for those not heard of in this epoch."""
        return {each: follower.offset for each, follower in self._followers.items()}

    def assign(self, replicas: Sequence[int], now_ms: int) -> None:
        """The partition has these replicas from now on. What is known of those that stay is kept."""
        known = self._followers
        fresh = {each: Follower(caught_up_ms=now_ms) for each in replicas if each != self.me}
        self._followers = {each: known.get(each, follower) for each, follower in fresh.items()}

    def note_fetch(self, replica: int, broker_epoch: int, offset: int, *, now_ms: int, end_offset: int) -> bool:
        """A follower asks for what comes at `offset`: it has everything below. `end_offset`: of the leader's log.

        False if it is no replica. A fetch of an older incarnation than one that was heard of is no news.
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
        """Where it may be, if it is at `present` and the leader itself has everything below `own_offset` for good."""
        if len(self.isr) < isr_min:
            return present
        least = own_offset
        for each in (*self.isr, *self._joining):
            follower = self._followers.get(each)
            if follower is not None and follower.offset < least:
                least = follower.offset
        return max(present, least)

    def lagging(self, now_ms: int, lag_max_ms: int) -> list[int]:
        """Those in sync that have not been at the end of the log for longer than `lag_max_ms`."""
        return [
            each
            for each in self.isr
            if (follower := self._followers.get(each)) is not None and now_ms - follower.caught_up_ms > lag_max_ms
        ]

    def caught_up(self, high_watermark: int, now_ms: int, lag_max_ms: int) -> list[tuple[int, int]]:
        """(replica, broker epoch) of those not in sync that have what it takes to be. Who has not fetched within
        `lag_max_ms` has not, even if the high watermark, too, stands where it was then: it would only lag again."""
        least = max(high_watermark, self.epoch_start_offset)
        return [
            (each, follower.broker_epoch)
            for each, follower in self._followers.items()
            if each not in self.isr and follower.offset >= least and now_ms - follower.fetched_ms <= lag_max_ms
        ]

    def propose(self, isr: Sequence[int]) -> None:
        """The store is about to be asked for this ISR. Whoever is to join counts for the high watermark from now on: it
        may be elected as soon as the store has it."""
        self._joining = tuple(each for each in isr if each not in self.isr)

    def settled(self, isr: Sequence[int]) -> None:
        """This is the ISR that the store has; nothing is proposed any more."""
        self.isr = tuple(isr)
        self._joining = ()

    @property
    def is_proposing(self) -> bool:
        """Whether somebody is about to join."""
        return bool(self._joining)
