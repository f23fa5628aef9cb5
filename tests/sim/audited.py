"""One broker whose audit log is required and cannot be written for a while: each acknowledged change has a line
there.

The audit log is a queue with little room and a writer, which stands still at times that the seed draws. Operators
create and delete topics of new names all the time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
from semel import Admin, NewTopic
from semel.errors import KafkaError

from sim.checkers.anomaly import Anomaly, few
from sim.client import SimEdge
from sim.cluster import BROKER, SimCluster
from sim.control import Listener
from sim.disk import DiskWeather
from sim.host import Host
from sim.logs import captured
from sim.run import RunVerdict
from sim.world import NS, SimWorld

CHECKER = "unaudited-change"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "audit.log.file": "audit",
    "audit.log.required": True,
}
ROOM, BEHIND = 20, 5
"""Lines: more are lost; from so many on the audit log is behind."""
OPERATORS = 2
RUN_NS, START_NS = 30 * NS, 60 * NS


class Standstill(msgspec.Struct, frozen=True):
    """The writer of the audit log writes nothing in this time."""

    from_s: float
    until_s: float


class AuditRun:
    """One run of a seed."""

    about = "audit log"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        self.world = world = SimWorld(seed, listener)
        rng = Random(f"audit/{seed}")
        self.faults: Sequence[Standstill] = [
            Standstill(at_s, at_s + rng.uniform(2, 6)) for at_s in (rng.uniform(1, 10), rng.uniform(17, 23))
        ]
        self.cluster = SimCluster(world, 1, SETTINGS, DiskWeather(sync_ms=(0.05, 0.5)))
        self.broker = self.cluster.brokers[BROKER]
        self.broker.audit, self.broker.audit_is_behind = self._note, lambda: len(self._waiting) >= BEHIND
        self._waiting: list[str] = []
        self._written: Counter[str] = Counter()
        self.acknowledged: Counter[str] = Counter()
        self.refused = 0

    def judged(self) -> RunVerdict:
        world = self.world
        with captured():
            try:
                self.cluster.boot()
                world.run(START_NS, self.cluster.has_formed)
                world.host("writer").boot(self._write)
                for number in range(OPERATORS):
                    world.host(f"operator-{number}").boot(self._operate)
                world.run(world.now_ns + RUN_NS)
            finally:
                world.close()
        missing = [
            f"{count} acknowledged changes of {name} have {self._written[name]} lines"
            for name, count in self.acknowledged.items()
            if self._written[name] + sum(name == resource_of(line) for line in self._waiting) < count
        ]
        return RunVerdict(
            seed=self.seed,
            digest=world.digest(),
            anomalies=[Anomaly(CHECKER, few(missing))] if missing else [],
            failures=[str(failure) for failure in world.failures],
            simulated_s=world.now_ns / NS,
            steps=world.steps,
            tally=world.tally,
        )

    def _note(self, line: str) -> None:
        if len(self._waiting) < ROOM:
            self._waiting.append(line)

    async def _write(self, host: Host) -> None:
        began_ns = self.world.now_ns
        while True:
            now_s = (self.world.now_ns - began_ns) / NS
            if not any(each.from_s <= now_s < each.until_s for each in self.faults):
                self._written.update(map(resource_of, self._waiting))
                self._waiting.clear()
            await asyncio.sleep(0.01)

    async def _operate(self, host: Host) -> None:
        async with Admin(bootstrap_servers=self.cluster.address, edge=SimEdge(host)) as admin:
            number = 0
            while True:
                name = f"{host.name}-{number}"
                number += 1
                try:
                    await admin.create_topics([NewTopic(name, 1)])
                    self.acknowledged[name] += 1
                    await admin.delete_topics([name])
                    self.acknowledged[name] += 1
                except KafkaError:
                    self.refused += 1
                await asyncio.sleep(host.rng.uniform(0.01, 0.1))


def resource_of(line: str) -> str:
    """The resource that a line names."""
    resource: str = msgspec.json.decode(line)["resource"]
    return resource
