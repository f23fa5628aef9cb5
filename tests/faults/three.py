"""Three brokers and their etcd, for a round."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from semel import Admin, NewTopic
from semel_storage.internal_topics import TRANSACTION_STATE
from sim.final import Decision

from faults.brokers import Brokers
from faults.cluster_mishaps import ClusterMishaps
from faults.cluster_observer import ClusterObserver, in_sync
from faults.crew import Worker
from faults.mishaps import Mishaps
from faults.observer import Observer
from faults.plan import RoundPlan
from faults.pulse import PARTITIONS, TOPIC
from faults.served import Tell, decisions

ERRORS = ('"event":"unexpected_error"', "Traceback (most recent call last)", "AssertionError")
READY_S = 60.0


class Three:
    """A cluster. What is served is replicated three times, and two must be in sync."""

    def __init__(self, plan: RoundPlan, directory: Path, rng: random.Random) -> None:
        self._plan, self._rng = plan, rng
        self._brokers = Brokers(directory / "cluster", plan.settings)
        self.decisions: list[Decision] | None = None
        self._differing: list[str] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._brokers.addresses.values())

    async def start(self) -> None:
        await self._brokers.start()
        await self._ready()
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            topics = [NewTopic(topic.name, topic.partitions, 3) for topic in self._plan.topics]
            await admin.create_topics([*topics, NewTopic(TOPIC, PARTITIONS, 3)])

    async def _ready(self) -> None:
        if left := await in_sync(self._brokers.addresses, READY_S):
            raise TimeoutError(f"after {READY_S:g} s: {left}")

    @property
    def counts(self) -> Counter[str]:
        """What all brokers logged of moves, and of mistakes that they expect."""
        found: Counter[str] = Counter()
        for name in self._brokers.names:
            for line in self._brokers.log(name):
                for event in ("controller_elected", "registration_lost", "group_not_stored"):
                    found[event] += f'"event":"{event}"' in line
        return found

    def observer(self) -> Observer:
        return ClusterObserver(self._brokers.addresses)

    def mishaps(self, crew: dict[str, Worker], problems: list[str], say: Tell) -> Mishaps:
        return ClusterMishaps(self._brokers, crew, self._rng, problems, say)

    async def heal(self) -> None:
        await self._brokers.cluster.heal()
        for name in [*self._brokers.names, "etcd"]:
            await self._brokers.up(name)
        await self._ready()

    async def stop(self) -> list[str]:
        """All replicas are equal before; then each broker gets its SIGTERM, the last one last."""
        await self._ready()
        async with ClusterObserver(self._brokers.addresses) as see:
            leaders = see.leaders()
        problems = []
        for name in self._brokers.names:
            status = await self._brokers.down(name, signal.SIGTERM)
            if status:
                problems.append(f"SIGTERM: {name} has exit status {status}")
        last = self._brokers.data(self._brokers.names[-1])
        self.decisions = decisions(sorted(last.glob(f"{TRANSACTION_STATE}-*")))
        return [*problems, *self._divergence(leaders)]

    def _divergence(self, leaders: dict[tuple[str, int], int]) -> Iterator[str]:
        """Replicas that are not the same bytes, as far as both go: who stops last may have a little more."""
        for (topic, index), leader in sorted(leaders.items()):
            held = {name: _log_bytes(self._brokers.data(name) / f"{topic}-{index}") for name in self._brokers.names}
            mine = held[f"broker-{leader}"]
            for name, data in held.items():
                size = min(len(mine), len(data))
                if mine[:size] != data[:size]:
                    yield f"replica-divergence: {topic}-{index} differs on broker-{leader}, its leader, and {name}"

    async def again(self) -> None:
        for name in self._brokers.names:
            await self._brokers.up(name)
        await self._ready()

    def errors(self) -> list[str]:
        return [
            f"{name} logged: {line}"
            for name in self._brokers.names
            for line in self._brokers.log(name)
            if any(sign in line for sign in ERRORS)
        ]

    async def end(self, keep: Path) -> None:
        await self._brokers.close()


def _log_bytes(directory: Path) -> bytes:
    """All that a partition's log holds, segment after segment."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
