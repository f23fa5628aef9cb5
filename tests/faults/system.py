"""The system under test of a round: the interface, and one broker behind a proxy."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from broker.wire import Wire
from semel_storage.disk.os_disk import OsDisk
from semel_storage.internal_topics import TRANSACTION_STATE
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig
from sim.ending import decisions_of
from sim.final import CoordinatorDecision

from faults.broker import ProxiedBroker
from faults.broker_fault_injector import PARTITION_OFFLINE, BrokerFaultInjector
from faults.fault_injector import FaultInjector
from faults.observer import Observer
from faults.plan import DISK_BYTES, RoundPlan
from faults.proxy import Proxy
from faults.small_disk import SmallDisk
from faults.worker_processes import WorkerProcesses

Tell = Callable[[str], None]
ERRORS = ('"event":"unexpected_error"', "Traceback (most recent call last)", '"level":"error"')

EXPLAINED = ('"event":"start_failed"', PARTITION_OFFLINE, '"event":"disk_')
"""Errors in the log of a broker whose files were damaged, or whose disk was full."""


class System(Protocol):
    """The brokers of a round. `bootstrap`: the bootstrap servers of workers. `decisions`: all decisions of transaction
    coordinators, once `stop` has returned; None: compaction has removed some."""

    decisions: list[CoordinatorDecision] | None

    @property
    def bootstrap(self) -> str: ...

    @property
    def counts(self) -> Counter[str]:
        """Events to report besides the faults of the plan, with their numbers."""

    async def start(self) -> None:
        """Start the brokers, and create the topics of the plan."""

    def observer(self) -> Observer: ...

    def injector(self, workers: dict[str, WorkerProcesses], problems: list[str], say: Tell) -> FaultInjector: ...

    async def heal(self) -> None:
        """End all network faults."""

    async def stop(self) -> list[str]:
        """Stop all brokers cleanly. Returns the problems of the stop."""

    async def again(self) -> None:
        """Start the brokers again after `stop`."""

    def errors(self) -> list[str]:
        """The unexpected errors in broker logs."""

    async def end(self, keep: Path) -> None:
        """Kill the processes that still run. Data and logs are kept in the folder `keep`."""


class SingleBroker:
    """One broker, perhaps on a small disk, behind a proxy."""

    def __init__(self, plan: RoundPlan, directory: Path, rng: random.Random) -> None:
        self._plan, self._directory, self._rng = plan, directory, rng
        self.decisions: list[CoordinatorDecision] | None = None

    async def start(self) -> None:
        self._disk = SmallDisk(self._directory / "small", DISK_BYTES) if self._plan.needs_small_disk else None
        self._proxy = await Proxy(self._rng).start()
        path = self._directory / "broker" / "data" if self._disk is None else self._disk.path
        self._broker = ProxiedBroker(path, self._plan.settings, self._proxy.port, self._disk)
        await self._broker.up()
        self._proxy.target_port = self._broker.port
        wire = await Wire.connect(self._broker.port)
        for topic in self._plan.topics:
            await wire.create_topic(topic.name, topic.partitions)
        await wire.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._proxy.port}"

    @property
    def counts(self) -> Counter[str]:
        return Counter({f"frames {what}": n for what, n in self._proxy.counts.items()})

    def observer(self) -> Observer:
        return Observer(self._broker.port)

    def injector(self, workers: dict[str, WorkerProcesses], problems: list[str], say: Tell) -> FaultInjector:
        return BrokerFaultInjector(self._broker, self._proxy, workers, self._rng, problems, say)

    async def heal(self) -> None:
        self._proxy.heal()

    async def stop(self) -> list[str]:
        status = await self._broker.down(signal.SIGTERM)
        self.decisions = decisions(sorted(self._broker.files.glob(f"{TRANSACTION_STATE}-*")))
        return [f"SIGTERM: exit status {status}"] if status else []

    async def again(self) -> None:
        await self._broker.up()

    def errors(self) -> list[str]:
        errors = [line for line in self._broker.log if any(sign in line for sign in ERRORS)]
        return [f"the broker logged: {line}" for line in errors if not any(each in line for each in EXPLAINED)]

    async def end(self, keep: Path) -> None:
        await self._broker.down(signal.SIGKILL)
        await self._proxy.stop()
        self._broker.keep(keep)
        if self._disk is not None:
            self._disk.close()


def decisions(directories: list[Path]) -> list[CoordinatorDecision] | None:
    """All decisions in these partitions of `__transaction_state`, read from the files of a stopped broker. None:
    compaction has removed some."""
    found: list[CoordinatorDecision] = []
    for directory in directories:
        log = Log.open(OsDisk(), str(directory), LogConfig(), now_ms=time.time_ns() // 1_000_000)
        rows = decisions_of(log)
        log.abandon()
        if rows is None:
            return None
        found += rows
    return found
