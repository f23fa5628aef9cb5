"""One round: processes are started, faults happen to them, all is healed and drained, and the checkers judge."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from broker.wire import Wire
from semel_storage.internal_topics import TRANSACTION_STATE
from semel_storage.log import Log
from semel_storage.log_config import LogConfig
from semel_storage.os_disk import OsDisk
from sim.checkers import Anomaly, check_all
from sim.ending import decisions_of
from sim.final import Decision, Final
from sim.history import Place

from faults import journal
from faults.broker import Broker
from faults.crew import Worker
from faults.mishaps import Mishaps
from faults.observer import NotReadable, Observer
from faults.plan import DISK_BYTES, RoundPlan
from faults.proxy import Proxy
from faults.small_disk import SmallDisk

DRAIN_S = 60.0
STOP_S = 45.0
SETTLE_S = 15.0
"""Longer than a transaction's timeout and two sweeps."""
POLL_S = 0.2
LOST = (ConnectionError, OSError, asyncio.IncompleteReadError, TimeoutError, NotReadable)
COUNTED = {"Stored": "stored", "Committed": "committed", "Aborted": "aborted", "Polled": "polls",
           "OffsetsCommitted": "offset commits"}  # fmt: skip
BROKER_ERRORS = ('"event":"unexpected_error"', "Traceback (most recent call last)", '"level":"error"')


class Verdict(msgspec.Struct, kw_only=True):
    """What a round came to. `problems`: processes that ended, or did not; errors that the broker logged."""

    seed: int
    anomalies: list[Anomaly] = []
    problems: list[str] = []
    operations: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    took_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.problems


class Round:
    """`await Round(plan, directory).run()`. What the processes left behind stays in `directory` if it is not clean."""

    def __init__(self, plan: RoundPlan, directory: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self._plan, self._directory, self._say = plan, directory, say
        self._problems: list[str] = []
        self._rng = random.Random(f"{plan.seed} run")
        self._undrained: list[str] = []

    async def run(self) -> Verdict:
        began = time.monotonic()
        self._directory.mkdir(parents=True)
        (self._directory / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._plan)))
        verdict = Verdict(seed=self._plan.seed)
        async with self._broker() as (broker, proxy):
            crew = {
                plan.name: Worker(
                    plan, f"127.0.0.1:{proxy.port}", self._directory, self._plan.seed, self._problems
                )
                for plan in self._plan.workers
            }  # fmt: skip
            mishaps = Mishaps(broker, proxy, crew, self._rng, self._problems, self._tell)
            try:
                for worker in crew.values():
                    await worker.start()
                for fault in self._plan.faults:
                    await mishaps.do(fault)
                await mishaps.over()
                proxy.heal()
                await mishaps.check_broker()
                self._tell("healed")
                await self._drain(broker, crew)
            finally:
                for worker in crew.values():
                    await worker.stop(0)
            final = await self._read(broker)
            await self._read_again(broker, final)
            verdict.faults = mishaps.counts + Counter({f"frames {what}": n for what, n in proxy.counts.items()})
            broker.keep(self._directory / "broker")
        self._judge(broker, final, verdict)
        verdict.took_s = time.monotonic() - began
        if verdict.is_clean:
            shutil.rmtree(self._directory)
        return verdict

    def _tell(self, line: str) -> None:
        self._say(f"{time.monotonic():.1f} {line}")

    @asynccontextmanager
    async def _broker(self) -> AsyncIterator[tuple[Broker, Proxy]]:
        disk = SmallDisk(self._directory / "small", DISK_BYTES) if self._plan.needs_small_disk else None
        proxy = await Proxy(self._rng).start()
        path = self._directory / "broker" / "data" if disk is None else disk.path
        broker = Broker(path, self._plan.settings, proxy.port, disk)
        try:
            await broker.up()
            proxy.target_port = broker.port
            wire = await Wire.connect(broker.port)
            for topic in self._plan.topics:
                await wire.create_topic(topic.name, topic.partitions)
            await wire.close()
            yield broker, proxy
        finally:
            await broker.down(signal.SIGKILL)
            await proxy.stop()
            if disk is not None:
                disk.close()

    # To the end

    async def _drain(self, broker: Broker, crew: dict[str, Worker]) -> None:
        """Writers first; then readers get to the end, and stop; then nothing is undecided."""
        for worker in crew.values():
            worker.wake()
        await self._stop([worker for worker in crew.values() if worker.plan.kind in ("write", "append")])
        await self._until(DRAIN_S, self._readers_behind, broker)
        await self._stop([worker for worker in crew.values() if worker.plan.kind in ("transform", "count")])
        await self._until(SETTLE_S, self._undecided, broker)

    async def _stop(self, workers: list[Worker]) -> None:
        ended = await asyncio.gather(*[worker.stop(STOP_S) for worker in workers])
        for worker, in_time in zip(workers, ended, strict=True):
            if not in_time:
                self._undrained.append(f"{worker.plan.name} does not end within {STOP_S:g} s of SIGTERM")

    async def _until(self, timeout_s: float, missing: Callable[[Observer], object], broker: Broker) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                async with Observer(broker.port) as see:
                    left = await missing(see)  # type: ignore[misc]
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
        for place in self._places():
            end = await see.partition(place)
            if end.last_stable_offset < end.high_watermark:
                return f"{place[0]}-{place[1]}: LSO {end.last_stable_offset} below HW {end.high_watermark}"
        return ""

    def _partitions(self, topic: str) -> int:
        return next(each.partitions for each in self._plan.topics if each.name == topic)

    def _places(self) -> list[Place]:
        return [(topic.name, index) for topic in self._plan.topics for index in range(topic.partitions)]

    # What is there

    async def _read(self, broker: Broker) -> Final:
        final = Final(undrained=self._undrained, topics={each.name: each.partitions for each in self._plan.topics})
        async with Observer(broker.port) as see:
            for place in self._places():
                final.partitions[place] = await see.partition(place)
            for group in self._plan.groups:
                found = await see.offsets(group, self._places())
                final.groups[group] = {place: offset for place, offset in found.items() if offset is not None}
        return final

    async def _read_again(self, broker: Broker, before: Final) -> None:
        """A clean stop and a start change nothing that anybody can read."""
        status = await broker.down(signal.SIGTERM)
        if status != 0:
            self._problems.append(f"SIGTERM: exit status {status}")
        before.decisions = decisions(broker.files)
        await broker.up()
        after = await self._read(broker)
        for place, end in before.partitions.items():
            if msgspec.json.encode(end) != msgspec.json.encode(after.partitions[place]):
                self._problems.append(f"{place[0]}-{place[1]} reads differently after a clean restart")
        if before.groups != after.groups:
            self._problems.append(f"offsets differ after a clean restart: {before.groups} and {after.groups}")

    def _judge(self, broker: Broker, final: Final, verdict: Verdict) -> None:
        history = journal.read(sorted(self._directory.glob("*.jsonl")))
        history.declare(*self._plan.topics, pipelines=self._plan.pipelines)
        verdict.operations = Counter(
            COUNTED[name] for event in history.events if (name := type(event).__name__) in COUNTED
        )
        verdict.anomalies = check_all(history, final)
        errors = [line for line in broker.log if any(sign in line for sign in BROKER_ERRORS)]
        self._problems += [f"the broker logged: {line}" for line in errors if '"event":"start_failed"' not in line][:5]
        verdict.problems = self._problems
        (self._directory / "history.json").write_bytes(history.encode())
        (self._directory / "verdict.txt").write_text(
            "\n".join([*map(str, verdict.anomalies), *verdict.problems, ""])
        )  # fmt: skip


def decisions(data_dir: Path) -> list[Decision] | None:
    """All that `__transaction_state` has recorded, of a broker that is down; None where compaction has taken some."""
    found: list[Decision] = []
    for directory in sorted(data_dir.glob(f"{TRANSACTION_STATE}-*")):
        log = Log.open(OsDisk(), str(directory), LogConfig(), now_ms=time.time_ns() // 1_000_000)
        rows = decisions_of(log)
        log.abandon()
        if rows is None:
            return None
        found += rows
    return found
