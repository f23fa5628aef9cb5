"""The system under test of a round on three brokers and their etcd."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from semel import Admin, NewTopic
from semel_storage.internal_topics import TRANSACTION_STATE
from sim.final import CoordinatorDecision

from demo.client_settings import of_semel
from faults.brokers import BrokerProcesses
from faults.cluster_fault_injector import ClusterFaultInjector
from faults.cluster_observer import ClusterObserver, in_sync
from faults.fault_injector import FaultInjector
from faults.latency_probe import PARTITIONS, TOPIC
from faults.observer import Observer
from faults.plan import RoundPlan
from faults.system import Tell, decisions
from faults.worker_processes import WorkerProcesses

ERRORS = ('"event":"unexpected_error"', "Traceback (most recent call last)", "AssertionError")
READY_S = 60.0


class ThreeBrokerProcesses:
    """Three brokers. Each partition has three replicas, and min.insync.replicas is 2."""

    def __init__(self, plan: RoundPlan, directory: Path, rng: random.Random) -> None:
        self._plan, self._rng = plan, rng
        self._brokers = BrokerProcesses(directory / "cluster", plan.settings, secure=plan.secure)
        self.decisions: list[CoordinatorDecision] | None = None
        self._differing: list[str] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._brokers.addresses.values())

    async def start(self) -> None:
        await self._brokers.start()
        await self._ready()
        async with Admin(**of_semel(self.bootstrap)) as admin:
            topics = [NewTopic(topic.name, topic.partitions, 3) for topic in self._plan.topics]
            await admin.create_topics([*topics, NewTopic(TOPIC, PARTITIONS, 3)])

    async def _ready(self) -> None:
        if left := await in_sync(self._brokers.addresses, READY_S):
            raise TimeoutError(f"after {READY_S:g} s: {left}")

    @property
    def counts(self) -> Counter[str]:
        """The number of elections of a controller, and of errors that faults cause, in the logs of all brokers."""
        found: Counter[str] = Counter()
        for name in self._brokers.names:
            for line in self._brokers.log(name):
                for event in ("controller_elected", "registration_lost", "group_not_stored"):
                    found[event] += f'"event":"{event}"' in line
        return found

    def observer(self) -> Observer:
        return ClusterObserver(self._brokers.addresses)

    def injector(self, workers: dict[str, WorkerProcesses], problems: list[str], say: Tell) -> FaultInjector:
        return ClusterFaultInjector(self._brokers, workers, self._rng, problems, say)

    async def heal(self) -> None:
        await self._brokers.cluster.heal()
        for name in [*self._brokers.names, "etcd"]:
            await self._brokers.up(name)
        await self._ready()

    async def stop(self) -> list[str]:
        """Wait until all replicas are in sync, then send SIGTERM to one broker after the other."""
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
        """The replicas whose bytes differ from their leader's, up to the shorter length: a broker that stops later may
        have more records.
        """
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
    """The bytes of a partition's log, segment after segment."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
