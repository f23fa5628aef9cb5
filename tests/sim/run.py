"""Runs a plan and gives the verdict: boot, prepare, work under faults, heal, drain, read all records again, judge."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable
from typing import Any

import msgspec
from semel import Admin, NewTopic
from semel.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

from sim import faults, rights
from sim.bit_rot import BitRot
from sim.broker import SimBroker
from sim.checkers import Anomaly, HistoryIndex, judge
from sim.client import SimEdge
from sim.cluster import SimCluster
from sim.commitment import Commitment
from sim.coordinators import Coordinators, unfaithful
from sim.coverage import count_history
from sim.ending import FinalReading, topics_of
from sim.events import HistoryTopic
from sim.faults import FaultTargets
from sim.final import Final
from sim.group_records import commits
from sim.history import History
from sim.host import Host
from sim.log_starts import LogStarts
from sim.logs import captured
from sim.plan import RunPlan
from sim.replicas import replicas_of
from sim.rights import Rights
from sim.stalls import LoopStalls
from sim.workloads import WORKLOADS
from sim.workloads.base import ClientContext, FaultFreePhase
from sim.workloads.plan import ClientPlan, Script, WorkloadPlan
from sim.workloads.shared_state import SharedState
from sim.world import NS, SimWorld, StuckHost

SERVES_WITHIN_NS = 10 * NS
RESTARTED_WITHIN_NS = 100 * NS
PREPARED_WITHIN_NS = 60 * NS
WORK_FOR_NS = 150 * NS
DRAINED_WITHIN_NS = 300 * NS
READ_WITHIN_NS = 300 * NS
COMES_BACK_S = 0.5

Listener = Callable[[int, str, str], None]


class RunVerdict(msgspec.Struct, kw_only=True):
    """The result of a run. `anomalies` come from checkers; `failures` are other errors, such as exceptions.

    `tally` counts the events of the run (`coverage`).
    """

    seed: int
    digest: str
    anomalies: list[Anomaly] = []
    failures: list[str] = []
    simulated_s: float = 0.0
    steps: int = 0
    events: int = 0
    tally: dict[str, int] = {}

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.failures

    @property
    def names(self) -> list[str]:
        """The kinds of findings: names of checkers, and "failure"."""
        return sorted({*(anomaly.checker for anomaly in self.anomalies), *(["failure"] if self.failures else [])})

    @property
    def ways(self) -> list[str]:
        """As `names`, with the headline of each failure. Two runs that share an element fail in the same way."""
        return sorted({*(anomaly.checker for anomaly in self.anomalies), *map(headline, self.failures)})


def headline(failure: str) -> str:
    """The kind of a failure: its text without time, host and details."""
    return re.split(r"[({\n]", failure.partition(": ")[2], maxsplit=1)[0].strip()


class SimRun:
    """One run. `history` and `final` can be read after it."""

    def __init__(self, plan: RunPlan, listener: Listener | None = None) -> None:
        self.plan = plan
        self.world = SimWorld(plan.seed, listener)
        world = self.world
        world.network.weather = plan.network
        world.network.watching = listener is not None or any(map(faults.needs_frames, plan.faults))
        self.history = History(lambda: world.now_ns / 1_000_000)
        self.history.has_followers = plan.brokers > 1
        self.final = Final()
        self.cluster = SimCluster(world, plan.brokers, plan.settings, plan.disk)
        self.commitment = None if self.cluster.store is None else Commitment(self.cluster.brokers, self.cluster.store)
        self.coordinators = Coordinators(self.cluster.brokers) if plan.has_consumers else None
        self.log_starts = LogStarts(self.cluster.brokers, self.history.topics) if plan.has_retention else None
        self.stalls = [LoopStalls(broker) for broker in self.cluster.brokers.values()] if plan.has_slow_disks else []
        self.rot: BitRot | None = None
        self._mains: dict[str, Callable[[Host], Any]] = {}
        self._done: dict[str, bool] = {}
        self._shared_states: dict[str, SharedState] = {}
        self._fault_free = FaultFreePhase()

    def execute(self) -> None:
        """Everything except the judging. Raises StuckHost."""
        self._begin()
        if not self._alone("setup", self._prepare, PREPARED_WITHIN_NS):
            return
        for workload in self.plan.workloads:
            for client in workload.clients:
                self._add_client(workload, client)
        targets = FaultTargets(self.world, self.cluster.brokers, self._boot_client, self.cluster.store, self._rights())
        faults.schedule(self.plan.faults, targets)
        self._until(self._nothing_to_do, WORK_FOR_NS)
        self._fault_free.has_begun = True
        faults.heal(targets)
        for name in self._mains:
            targets.boot(name)
        if not self._until(self._all_done, DRAINED_WITHIN_NS):
            self.final.undrained += [f"{name} has not finished" for name, done in self._done.items() if not done]
        self.final.undrained += self._fault_free.stalled
        self._decide()
        for workload in self.plan.workloads:
            self._alone(f"{workload.prefix}settle", self._settling(workload), DRAINED_WITHIN_NS)
        self._decide()  # a request that was held until now may have begun a transaction whose producer has ended
        mismatches = self._mismatches("before the end")
        self._finale()
        groups = [group for workload in self.plan.workloads for group in workload.groups]
        self._replicate()
        self._decide()  # retention may have deleted an open transaction, and a power loss undone that
        self._replicate()
        reading = FinalReading(self.cluster.address, self.history, groups, self.cluster.nodes)
        undrained = self.final.undrained
        store = self.cluster.store.told() if self.cluster.store is not None else []
        uncommitted = list(self.commitment.found.values()) if self.commitment is not None else []
        self._alone("reader", reading.main, READ_WITHIN_NS)
        self.final = reading.final
        self.final.unfaithful = mismatches + self._mismatches("after the end")
        if self.coordinators is not None:
            self.final.regressed = list(self.coordinators.found.values())
            self.final.commits = list(commits(self.cluster.nodes()))
            self.final.eras = self.coordinators.eras.found()
        if self.log_starts is not None:
            self.final.log_starts = self.log_starts.highest
        self.final.keeps_deletions = self.plan.keeps_deletions
        self.final.store, self.final.uncommitted = store, uncommitted
        self.final.undrained += undrained
        if self._replicate():  # also records written during the reading, for example when a group member expired
            self.final.replicas = replicas_of(self.cluster.nodes())
        if self.plan.rot and self.cluster.nodes() and not self.world.failures:
            self._rot(*self.cluster.brokers.values())

    # Phases

    def _begin(self) -> None:
        self.cluster.boot()
        if not self._until(self.cluster.has_formed, SERVES_WITHIN_NS):
            self.world.fail("world", "the broker does not start")

    async def _prepare(self, host: Host) -> None:
        topics = []
        for workload in self.plan.workloads:
            for topic in workload.topics:
                self.history.declare(HistoryTopic(topic.name, topic.partitions, topic.cleanup))
                topics.append(NewTopic(topic.name, topic.partitions, topic_configs=topic.configs))
        async with Admin(bootstrap_servers=self.cluster.address, edge=SimEdge(host)) as admin:
            if self.plan.has_rights:
                await admin.create_acls(rights.everything_to_everyone())
            while topics:
                try:
                    await admin.create_topics(topics)
                    return
                except (InvalidReplicationFactorError, TopicAlreadyExistsError):
                    # A broker has lost its session, and is registering again; or such a one has listed the topics here,
                    # and did not know all of them yet.
                    await asyncio.sleep(COMES_BACK_S)
                    there = await topics_of(admin)
                    topics = [topic for topic in topics if topic.name not in there]

    def _add_client(self, workload: WorkloadPlan, client: ClientPlan) -> None:
        kind, script = WORKLOADS[workload.kind], Script(client.ops)

        async def main(host: Host) -> None:
            await kind.client(workload, client, self._context(host), script)
            self._done[client.name] = True

        self._mains[client.name] = main
        self._done[client.name] = False
        self.world.host(client.name)
        self._boot_client(client.name)

    def _rights(self) -> Rights | None:
        """The administrator that takes rights away, on a host of its own. It needs no time after the faults."""
        if not self.plan.has_rights:
            return None
        workloads = self.plan.workloads
        ids = [
            client.settings["transactional_id"]
            for workload in workloads
            for client in workload.clients
            if "transactional_id" in client.settings
        ]
        topics = [topic.name for workload in workloads for topic in (*workload.topics, *workload.renewed)]
        groups = [group for workload in workloads for group in workload.groups]
        found = Rights(self.history, self.cluster.address, rights.names_of(topics, ids, groups))

        async def main(host: Host) -> None:
            await found.main(host)
            self._done[rights.HOST] = True

        self._mains[rights.HOST], self._done[rights.HOST] = main, False
        self._fault_free.waiting[rights.HOST] = None
        self.world.host(rights.HOST)
        self._boot_client(rights.HOST)
        return found

    def _boot_client(self, name: str) -> None:
        if name in self._mains and not self._done[name]:
            self.world.hosts[name].boot(self._mains[name])

    def _settling(self, workload: WorkloadPlan) -> Callable[[Host], Any]:
        async def main(host: Host) -> None:
            try:
                await WORKLOADS[workload.kind].settle(workload, self._context(host))
            except AssertionError as error:
                self.final.undrained.append(str(error))

        return main

    def _decide(self) -> None:
        if not self._until(self.cluster.all_decided, DRAINED_WITHIN_NS):
            self.final.undrained.append("a transaction stays open")

    def _finale(self) -> None:
        match self.plan.finale:
            case "kill":
                self.cluster.each(SimBroker.kill)
            case "power loss":
                self.cluster.each(SimBroker.power_loss)
            case "terminate":
                self.cluster.each(SimBroker.terminate)
        self.cluster.boot()
        if not self._until(lambda: self.cluster.serves, RESTARTED_WITHIN_NS):
            self.final.undrained.append("the broker does not start")

    def _mismatches(self, when: str) -> list[str]:
        """Groups of the consumer protocol that differ from their records."""
        if self.coordinators is None:
            return []
        return [f"{when} {what}" for what in unfaithful(self.cluster.nodes())]

    def _replicate(self) -> bool:
        """Wait until all replicas have the records of their leaders. False with one broker: nothing to compare."""
        if self.plan.brokers > 1 and not self._until(self.cluster.all_replicated, DRAINED_WITHIN_NS):
            self.final.undrained.append("a replica does not get all records of its leader")
        return self.plan.brokers > 1

    def _rot(self, broker: SimBroker) -> None:
        assert broker.node is not None
        forgetful = [topic.name for topic in self.history.topics.values() if topic.cleanup]
        places = [place for place in self.final.partitions if place[0] not in forgetful]
        self.rot = BitRot(broker.node, broker.host, self.final, places, broker.address, self.plan.rot)
        if self.plan.rot > 1:
            broker.damaged |= self.rot.before  # with a rotten marker the broker may refuse to start
            broker.terminate()
            self._until(lambda: broker.serves, RESTARTED_WITHIN_NS)
        self._alone("rot", self.rot.main, READ_WITHIN_NS)

    # Helpers

    def _context(self, host: Host) -> ClientContext:
        return ClientContext(
            edge=SimEdge(host),
            bootstrap_servers=self.cluster.address,
            history=self.history,
            fault_free=self._fault_free,
            pause_process=host.pause,
            shared_states=self._shared_states,
        )

    def _nothing_to_do(self) -> bool:
        for name, done in self._done.items():  # noqa: SIM110 (asked at each step: without a generator)
            if not done and name not in self._fault_free.waiting:
                return False
        return True

    def _all_done(self) -> bool:
        return all(self._done.values())

    def _until(self, stop: Callable[[], bool], within_ns: int) -> bool:
        world = self.world
        watches = [each for each in (self.commitment, self.coordinators, self.log_starts) if each is not None]
        if not watches or stop():
            return stop() or world.run(world.now_ns + within_ns, stop)

        def look() -> bool:
            now_ns = world.now_ns
            for each in watches:
                if now_ns >= each.due_ns:
                    each.look(now_ns)
            return stop()

        return world.run(world.now_ns + within_ns, look)

    def _alone(self, name: str, main: Callable[[Host], Any], within_ns: int) -> bool:
        """Run one process on a host of its own until it ends. False if it does not end in time or the run fails."""
        host = self.world.host(name)
        host.boot(main)
        if self._until(lambda: not host.is_running, within_ns):
            return not self.world.failures
        self.final.undrained.append(f"{name} has not finished")
        host.kill()
        return False


def run(plan: RunPlan, listener: Listener | None = None) -> RunVerdict:
    """Execute a plan and judge the result."""
    return execute(plan, listener)[0]


def execute(plan: RunPlan, listener: Listener | None = None) -> tuple[RunVerdict, SimRun]:
    """As `run`; returns also the `SimRun`, with its history and the final state."""
    plan = msgspec.convert(msgspec.to_builtins(plan), RunPlan)  # a copy, because a run changes its plan
    gc.disable()  # a collection at a random moment would make runs differ
    try:
        with captured():
            targets = SimRun(plan, listener)
            world = targets.world
            try:
                targets.execute()
            except StuckHost as error:
                world.fail("world", "stuck", error)
            finally:
                world.close()
        verdict = RunVerdict(
            seed=plan.seed,
            digest=world.digest(),
            simulated_s=world.now_ns / NS,
            steps=world.steps,
            events=len(targets.history.events),
        )
        verdict.failures = [str(failure) for failure in world.failures]
        facts = HistoryIndex(targets.history, targets.final)
        verdict.anomalies = judge(facts)
        for stalls in targets.stalls:
            verdict.anomalies += stalls.found()
        if targets.rot is not None and not verdict.failures:
            verdict.anomalies += targets.rot.found()
            world.count("came/rotten batches met by readers", targets.rot.errors)
        verdict.tally = world.tally
        count_history(world.tally, facts, world.network.held)
        return verdict, targets
    finally:
        gc.enable()
