"""PURE: plans the replicas of partitions: even load, different racks, as few moves as possible.

Goals in order: the requested number of replicas, on the given brokers; as many racks as possible; even counts over the
brokers, for each topic and in total; few moves. The first replica of a partition is its preferred leader. Leaders are
evened out too, which moves no data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from semel import TopicPartition

Placement = dict[TopicPartition, list[int]]


def plan(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition of `current`, on the brokers of `racks` (id -> rack, None without a rack).

    replication_factor: None keeps each partition's own. Raises ValueError when there are too few brokers.
    """
    planner = _Planner(current, racks)
    for at in planner.placed:
        factor = replication_factor or max(len(current[at]), 1)
        if factor > len(racks):
            raise ValueError(
                f"{at.topic}-{at.partition}: {factor} replicas need as many brokers, and there are {len(racks)}: "
                f"lower --replication-factor, or give more brokers to --brokers"
            )
        planner.fit(at, factor)
    planner.even_out()
    return {at: tuple(replicas) for at, replicas in planner.placed.items()}


class _Planner:
    def __init__(self, current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None]) -> None:
        self.racks = {broker: (rack is None, rack or str(broker)) for broker, rack in sorted(racks.items())}
        self.placed: Placement = {
            at: [broker for broker in replicas if broker in racks] for at, replicas in sorted(current.items())
        }
        self._in_all = dict.fromkeys(self.racks, 0)
        self._in_topic = {at.topic: dict.fromkeys(self.racks, 0) for at in self.placed}
        for at, replicas in self.placed.items():
            for broker in replicas:
                self._count(at, broker, 1)

    def fit(self, at: TopicPartition, factor: int) -> None:
        """Give the partition `factor` replicas, in as many racks as possible."""
        replicas = self.placed[at]
        while len(replicas) > factor:
            self._drop(at)
        while len(replicas) < factor:
            self._add(at)
        while self._spread(replicas) < min(factor, len(dict.fromkeys(self.racks.values()))):
            self._drop(at)
            self._add(at)

    def even_out(self) -> None:
        """Even out the replicas of each topic, then of all topics, then the leaders."""
        topics: dict[str, Placement] = {}
        for at, replicas in self.placed.items():
            topics.setdefault(at.topic, {})[at] = replicas
        # A move for the total may allow a better one for a topic.
        while self._moves_replicas(topics):
            pass
        while self._moves_leaders(topics):
            pass

    def _moves_replicas(self, topics: Mapping[str, Placement]) -> bool:
        moved = 0
        for name, pool in topics.items():
            while self._moves_one(pool, self._in_topic[name]):
                moved += 1
        while self._moves_one(self.placed, self._in_all):
            moved += 1
        return moved > 0

    def _moves_leaders(self, topics: Mapping[str, Placement]) -> bool:
        moved, leads = 0, _LeaderCounts(self.placed, self.racks)
        for name, pool in topics.items():
            while leads.move_one(pool, leads.in_topic[name], evenly=False):
                moved += 1
        while leads.move_one(self.placed, leads.in_all, evenly=True):
            moved += 1
        return moved > 0

    def _add(self, at: TopicPartition) -> None:
        replicas, in_topic = self.placed[at], self._in_topic[at.topic]
        taken = [self.racks[broker] for broker in replicas]
        free = [broker for broker in self.racks if broker not in replicas]
        chosen = min(free, key=lambda b: (self.racks[b] in taken, in_topic[b], self._in_all[b], b))
        replicas.append(chosen)
        self._count(at, chosen, 1)

    def _drop(self, at: TopicPartition) -> None:
        """Remove a replica: one that shares its rack, on the broker with the most replicas; the leader last."""
        replicas, in_topic = self.placed[at], self._in_topic[at.topic]
        held = [self.racks[broker] for broker in replicas]
        victim = max(
            replicas[1:] or replicas, key=lambda b: (held.count(self.racks[b]) > 1, in_topic[b], self._in_all[b], b)
        )
        replicas.remove(victim)
        self._count(at, victim, -1)

    def _moves_one(self, pool: Placement, load: dict[int, int]) -> bool:
        """Move one replica from a broker to one with at least two fewer. False when there is none to move.

        No move makes a topic less even, or takes a partition out of a rack.
        """
        for high in sorted(load, key=lambda b: (-load[b], b)):
            for low in sorted(load, key=lambda b: (load[b], b)):
                if load[high] - load[low] < 2:
                    break
                for at, replicas in pool.items():
                    if high in replicas and low not in replicas and self._may_move(at, high, low):
                        replicas[replicas.index(high)] = low
                        self._count(at, high, -1)
                        self._count(at, low, 1)
                        return True
        return False

    def _may_move(self, at: TopicPartition, high: int, low: int) -> bool:
        replicas, in_topic = self.placed[at], self._in_topic[at.topic]
        moved = [low if broker == high else broker for broker in replicas]
        return in_topic[high] > in_topic[low] and self._spread(moved) >= self._spread(replicas)

    def _count(self, at: TopicPartition, broker: int, by: int) -> None:
        self._in_all[broker] += by
        self._in_topic[at.topic][broker] += by

    def _spread(self, replicas: Iterable[int]) -> int:
        return len(dict.fromkeys(self.racks[broker] for broker in replicas))


class _LeaderCounts:
    """The number of partitions that each broker leads, for each topic and in total."""

    def __init__(self, placed: Placement, brokers: Iterable[int]) -> None:
        self.in_all = dict.fromkeys(brokers, 0)
        self.in_topic = {at.topic: dict.fromkeys(self.in_all, 0) for at in placed}
        for at, replicas in placed.items():
            self.in_all[replicas[0]] += 1
            self.in_topic[at.topic][replicas[0]] += 1

    def move_one(self, pool: Placement, leads: Mapping[int, int], *, evenly: bool) -> bool:
        """Move one leadership from a broker to one with at least two fewer. False when there is none to move.

        It may move along a chain: each broker in between loses one leadership and gets one. evenly: no topic may become
        less even.
        """
        for high in sorted(leads, key=lambda b: (-leads[b], b)):
            if leads[high] - min(leads.values()) < 2:
                break
            came: dict[int, tuple[int, TopicPartition]] = {}
            reached = [high]
            for giver in reached:
                for at, replicas in pool.items():
                    if replicas[0] == giver:
                        for taker in replicas[1:]:
                            in_topic = self.in_topic[at.topic]
                            if taker not in reached and (not evenly or in_topic[giver] > in_topic[taker]):
                                came[taker] = (giver, at)
                                reached.append(taker)
            low = min(reached, key=lambda b: leads[b])
            if leads[high] - leads[low] >= 2:
                self._apply_chain(pool, came, low, high)
                return True
        return False

    def _apply_chain(
        self, pool: Placement, came: Mapping[int, tuple[int, TopicPartition]], low: int, high: int
    ) -> None:
        while low != high:
            giver, at = came[low]
            pool[at].remove(low)
            pool[at].insert(0, low)
            for counts in (self.in_all, self.in_topic[at.topic]):
                counts[giver] -= 1
                counts[low] += 1
            low = giver
