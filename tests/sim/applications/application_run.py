"""Runs the application with one blow (such as a kill) before one step of it or of its broker, and judges the run."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from semel import Admin, NewTopic

from sim.applications.enrich import BATCH_RECORDS, BATCHES, GROUP, PIPELINE, SOURCE, TARGET, TARGET_PARTITIONS, Enrich
from sim.applications.steps import count_steps
from sim.broker import SimBroker
from sim.checkers import check_all
from sim.client import SimEdge
from sim.ending import FinalReading
from sim.events import HistoryTopic
from sim.history import History
from sim.host import Host
from sim.logs import captured
from sim.run import Listener
from sim.workloads.base import ClientContext, stop
from sim.workloads.recording_producer import RecordingProducer
from sim.world import NS, SimWorld

MS = 1_000_000
WITHIN_NS = 120 * NS
BACK_AFTER_MS = 300
SUCCESSOR_AFTER_MS = 200
ASLEEP_MS = 9_000
"""Longer than the session and the transaction timeout."""
SETTINGS = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
}

Blow = Literal["none", "kill", "pause", "pause, replaced late", "kill broker", "power loss"]
BLOWS: tuple[Blow, ...] = ("kill", "pause", "pause, replaced late", "kill broker", "power loss")
VERSIONS = (2, 1)
TO_BROKER = ("kill broker", "power loss")


Case = tuple[int, Blow, int, int]
"""Transaction version, blow, step, seed."""


class ApplicationOutcome(msgspec.Struct, kw_only=True):
    """The result of a run. `steps`: of the application, `broker_steps`: of the broker, until the work was done.
    `findings`: anomalies and failures as text. `struck`: the blow took place.
    """

    findings: list[str]
    steps: int
    broker_steps: int
    struck: bool
    digest: str


class ApplicationRun:
    """One run. `blow` precedes step `at` of the application, or of the broker since the application was booted."""

    def __init__(self, version: int, blow: Blow, at: int, seed: int, listener: Listener | None = None) -> None:
        self.world = SimWorld(f"enrich/{seed}", listener)
        self.world.network.watching = listener is not None
        world = self.world
        self.history = History(lambda: world.now_ns / MS)
        self.history.declare(HistoryTopic(SOURCE, 1), HistoryTopic(TARGET, TARGET_PARTITIONS), pipelines=[PIPELINE])
        self.broker = SimBroker(world.host("broker"), {**SETTINGS, "transaction.version": version})
        self.broker.host.disk.weather.sync_ms = (0.05, 0.5)
        self.undrained: list[str] = []
        self.struck = False
        self._blow, self._at = blow, at
        self._alive: dict[str, None] = {}

    def run(self) -> ApplicationOutcome:
        world = self.world
        self.broker.boot()
        assert world.run(world.now_ns + WITHIN_NS, lambda: self.broker.node is not None)
        self._alone("setup", self._prepare)
        self._boot_application("app")
        on_broker = self._blow in TO_BROKER
        self.steps = count_steps(world.hosts["app"], 0 if on_broker else self._at, self._strike)
        self.broker_steps = count_steps(self.broker.host, self._at if on_broker else 0, self._strike, callbacks=True)
        if not world.run(world.now_ns + WITHIN_NS, lambda: not self._alive):
            self.undrained.append(f"{', '.join(self._alive)} not finished after {WITHIN_NS // NS} s")
        steps, broker_steps = self.steps.disarm(), self.broker_steps.disarm()
        self.broker.boot()
        world.run(world.now_ns + WITHIN_NS, lambda: self.broker.node is not None)
        reading = FinalReading(self.broker.address, self.history, [GROUP], self.broker.nodes)
        self._alone("reader", reading.main)
        del self.steps, self.broker_steps  # with the callbacks of dead processes
        world.close()
        reading.final.undrained += self.undrained
        findings = [*map(str, check_all(self.history, reading.final)), *map(str, world.failures)]
        done = reading.final.groups.get(GROUP, {}).get((SOURCE, 0))
        if done != BATCHES * BATCH_RECORDS:
            findings.append(f"unfinished: the group's committed offset is {done}")
        return ApplicationOutcome(
            findings=findings,
            steps=steps,
            broker_steps=broker_steps,
            struck=self.struck,
            digest=world.digest(),
        )

    # Processes

    def _context(self, host: Host) -> ClientContext:
        return ClientContext(edge=SimEdge(host), bootstrap_servers=self.broker.address, history=self.history)

    async def _prepare(self, host: Host) -> None:
        context = self._context(host)
        async with Admin(**context.settings()) as admin:
            await admin.create_topics([NewTopic(SOURCE, 1), NewTopic(TARGET, TARGET_PARTITIONS)])
        writer = RecordingProducer(context, "setup", {})
        await writer.start()
        for _ in range(BATCHES * BATCH_RECORDS):
            await writer.send(SOURCE, 0)
        await stop(writer.producer)

    def _boot_application(self, name: str) -> None:
        """Start the application on its host, and again when it has ended with work left, as a supervisor would."""
        host = self.world.hosts.get(name) or self.world.host(name)

        async def main(host: Host) -> None:
            if await Enrich(self._context(host), name).run():
                del self._alive[name]

        def ended(how: str) -> None:
            if name in self._alive and not self.world.failures:
                self.world.after(BACK_AFTER_MS * MS, host.boot, main)

        self._alive[name] = None
        host.ended = ended
        host.boot(main)

    def _alone(self, name: str, main: Callable[[Host], Any]) -> None:
        host = self.world.host(name)
        host.boot(main)
        if not self.world.run(self.world.now_ns + WITHIN_NS, lambda: not host.is_running):
            self.undrained.append(f"{name} has not finished")

    # The blow

    def _strike(self) -> None:
        self.struck = True
        world, application = self.world, self.world.hosts["app"]
        after = world.after
        match self._blow:
            case "kill":
                application.kill()
                after(BACK_AFTER_MS * MS, self._boot_application, "app")
            case "pause":
                application.pause()
                after(SUCCESSOR_AFTER_MS * MS, self._boot_application, "successor")
                after(ASLEEP_MS * MS, application.resume)
            case "pause, replaced late":
                application.pause()
                after(ASLEEP_MS * MS, self._boot_application, "successor")
                after(ASLEEP_MS * MS, application.resume)
            case "kill broker":
                self.broker.kill()
                after(BACK_AFTER_MS * MS, self.broker.boot)
            case "power loss":
                self.broker.power_loss()
                after(BACK_AFTER_MS * MS, self.broker.boot)


def play(
    version: int, blow: Blow = "none", at: int = 0, *, seed: int = 0, listener: Listener | None = None
) -> ApplicationOutcome:
    """Run the application; always the same for the same arguments. `version`: of transactions. `seed`: of latencies.

    Raises StuckHost.
    """
    gc.disable()
    try:
        with captured():
            return ApplicationRun(version, blow, at, seed, listener).run()
    finally:
        gc.enable()


def points(version: int, blow: Blow, *, seed: int = 0) -> range:
    """All steps of the application, or of the broker, that this blow can precede."""
    calm = play(version, seed=seed)
    assert not calm.findings, calm.findings
    return range(1, (calm.broker_steps if blow in TO_BROKER else calm.steps) + 1)


def run_case(case: Case) -> tuple[Case, list[str]]:
    """The findings of a case."""
    version, blow, at, seed = case
    outcome = play(version, blow, at, seed=seed)
    return case, outcome.findings if outcome.struck else [*outcome.findings, "the blow did not take place"]
