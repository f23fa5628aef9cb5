"""One round: starts processes, injects faults, heals, waits until all is read, and runs the checkers."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from sim.checkers import Anomaly, check_all
from sim.events import Place
from sim.final import Final

from faults import journal
from faults.observer import NotReadable, Observer
from faults.plan import RoundPlan
from faults.system import SingleBroker, System
from faults.worker_processes import WorkerProcesses

DRAIN_S = 60.0
STOP_S = 45.0
SETTLE_S = 15.0
"""Longer than the transaction timeout and two of the broker's checks for expired transactions."""
POLL_S = 0.2
LOST = (ConnectionError, OSError, asyncio.IncompleteReadError, TimeoutError, NotReadable)
COUNTED = {"Stored": "stored", "Committed": "committed", "Aborted": "aborted", "Polled": "polls",
           "OffsetsCommitted": "offset commits"}  # fmt: skip


class RoundVerdict(msgspec.Struct, kw_only=True):
    """The result of a round. `problems`: processes that ended unexpectedly or did not end; errors in broker logs.
    `notes`: measurements."""

    seed: int
    anomalies: list[Anomaly] = []
    problems: list[str] = []
    operations: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    notes: list[str] = []
    took_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.problems


class Round:
    """`await Round(plan, directory).run()`. If the round is not clean, data, logs and journals stay in `directory`."""

    def __init__(self, plan: RoundPlan, directory: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self._plan, self._directory, self._say = plan, directory, say
        self._problems: list[str] = []
        self._undrained: list[str] = []
        directory.mkdir(parents=True)
        self._system = self._serve(random.Random(f"{plan.seed} run"))

    def _serve(self, rng: random.Random) -> System:
        if self._plan.brokers > 1:
            from faults.three_brokers import ThreeBrokerProcesses

            return ThreeBrokerProcesses(self._plan, self._directory, rng)
        return SingleBroker(self._plan, self._directory, rng)

    async def run(self) -> RoundVerdict:
        began = time.monotonic()
        (self._directory / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._plan)))
        verdict = RoundVerdict(seed=self._plan.seed)
        try:
            await self._system.start()
            final = await self._play(verdict)
            self._judge(final, verdict)
        except LOST as error:
            self._problems.append(f"the round could not be finished: {type(error).__name__}: {error}")
        finally:
            await self._system.end(self._directory / "broker")
        verdict.problems = self._problems
        verdict.took_s = time.monotonic() - began
        if verdict.is_clean:
            shutil.rmtree(self._directory)
        return verdict

    async def _play(self, verdict: RoundVerdict) -> Final:
        workers = {
            plan.name: WorkerProcesses(plan, self._system.bootstrap, self._directory, self._plan.seed, self._problems)
            for plan in self._plan.workers
        }
        injector = self._system.injector(workers, self._problems, self._tell)
        try:
            for worker in workers.values():
                await worker.start()
            for fault in self._plan.faults:
                await injector.inject(fault)
            await injector.finish()
            await self._system.heal()
            await injector.check()
            self._tell("healed")
            await self._drain(workers)
        finally:
            verdict.faults, verdict.notes = injector.counts + self._system.counts, injector.notes
            for worker in workers.values():
                await worker.stop(0)
        verdict.faults["librdkafka stuck"] = sum(worker.stuck for worker in workers.values())
        final = await self._read()
        self._tell("read")
        await self._read_again(final)
        return final

    def _tell(self, line: str) -> None:
        self._say(f"{time.monotonic():.1f} {line}")

    # --- draining ---

    async def _drain(self, workers: dict[str, WorkerProcesses]) -> None:
        """Stop the writers, wait until the readers have read all records, stop them, and wait until no transaction is
        open.
        """
        for worker in workers.values():
            worker.resume_all()
        await self._stop([worker for worker in workers.values() if worker.plan.kind in ("write", "append")])
        await self._until(DRAIN_S, self._readers_behind)
        await self._stop([worker for worker in workers.values() if worker.plan.kind in ("transform", "count")])
        await self._until(SETTLE_S, self._undecided)

    async def _stop(self, workers: list[WorkerProcesses]) -> None:
        ended = await asyncio.gather(*[worker.stop(STOP_S) for worker in workers])
        for worker, in_time in zip(workers, ended, strict=True):
            if not in_time:
                self._undrained.append(f"{worker.plan.name} does not end within {STOP_S:g} s of SIGTERM")

    async def _until(self, timeout_s: float, missing: Callable[[Observer], Awaitable[str]]) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                async with self._system.observer() as see:
                    left = await missing(see)
            except LOST as error:
                left = f"{type(error).__name__}: {error}"
            if not left:
                return
            if time.monotonic() > deadline:
                self._undrained.append(f"after {timeout_s:g} s: {left}")
                return
            await asyncio.sleep(POLL_S)

    async def _readers_behind(self, see: Observer) -> str:
        for group in self._plan.groups:
            sources = [worker.source for worker in self._plan.workers if worker.group == group]
            places = [(sources[0], index) for index in range(self._partitions(sources[0]))]
            for place, offset in (await see.offsets(group, places)).items():
                end = (await see.partition(place)).committed
                if end and (offset or 0) <= end[-1].offset:
                    return f"group {group} is at {offset} of {place[0]}-{place[1]}, which ends with {end[-1].offset}"
        return ""

    async def _undecided(self, see: Observer) -> str:
        for place in self._all_partitions():
            end = await see.partition(place)
            if end.last_stable_offset < end.high_watermark:
                return f"{place[0]}-{place[1]}: LSO {end.last_stable_offset} below HW {end.high_watermark}"
        return ""

    def _partitions(self, topic: str) -> int:
        return next(each.partitions for each in self._plan.topics if each.name == topic)

    def _all_partitions(self) -> list[Place]:
        return [(topic.name, index) for topic in self._plan.topics for index in range(topic.partitions)]

    # --- reading and judging ---

    async def _read(self) -> Final:
        final = Final(undrained=self._undrained, topics={each.name: each.partitions for each in self._plan.topics})
        async with self._system.observer() as see:
            for place in self._all_partitions():
                final.partitions[place] = await see.partition(place)
            for group in self._plan.groups:
                found = await see.offsets(group, self._all_partitions())
                final.groups[group] = {place: offset for place, offset in found.items() if offset is not None}
        return final

    async def _read_again(self, before: Final) -> None:
        """Check that a clean stop and a start change neither records nor offsets."""
        self._problems += await self._system.stop()
        before.decisions = self._system.decisions
        await self._system.again()
        after = await self._read()
        for place, end in before.partitions.items():
            if msgspec.json.encode(end) != msgspec.json.encode(after.partitions[place]):
                self._problems.append(f"{place[0]}-{place[1]} reads differently after a clean restart")
        if before.groups != after.groups:
            self._problems.append(f"offsets differ after a clean restart: {before.groups} and {after.groups}")

    def _judge(self, final: Final, verdict: RoundVerdict) -> None:
        history = journal.read(sorted(self._directory.glob("*.jsonl")))
        history.declare(*self._plan.topics, pipelines=self._plan.pipelines)
        verdict.operations = Counter(
            COUNTED[name] for event in history.events if (name := type(event).__name__) in COUNTED
        )
        verdict.anomalies = check_all(history, final)
        self._problems += self._system.errors()[:5]
        (self._directory / "history.json").write_bytes(history.encode())
        (self._directory / "verdict.txt").write_text(
            "\n".join([*map(str, verdict.anomalies), *self._problems, ""])
        )  # fmt: skip
