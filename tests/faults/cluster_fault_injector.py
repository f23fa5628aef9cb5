"""Faults of a cluster: brokers and etcd are killed, paused, restarted one after the other, and partitioned."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable

from sim.events import Place

from faults.brokers import ETCD, BrokerProcesses
from faults.cluster_observer import GROUP, LOST, TRANSACTION, ClusterObserver, in_sync
from faults.cluster_plan import SERIAL
from faults.fault_injector import FaultInjector
from faults.latency_probe import LatencyProbe
from faults.observer import NotReadable
from faults.worker_processes import WorkerProcesses
from tools.cluster.places import HOST

SYNC_S = 60.0
LAST_LINES = 15
NO_STORE, START_FAILED = "the cluster's store cannot be reached", '"start_failed"'
ROLLING_P99_S = 1.0


class ClusterFaultInjector(FaultInjector):
    """Injects faults into three brokers and their etcd. `_holder` finds the broker that has a role."""

    serial = SERIAL

    def __init__(
        self, brokers: BrokerProcesses, workers: dict[str, WorkerProcesses], rng: random.Random, problems: list[str],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(workers, rng, problems, say)
        self._brokers, self._cluster = brokers, brokers.cluster
        self._start_failures: dict[str, int] = {}
        self._network = asyncio.Lock()
        """One change of the network at a time. Cuts of the same service are healed together."""

    async def check(self) -> None:
        for name in self._brokers.restarted():
            if not self._has_missed_the_store(name):
                last = "\n".join(self._brokers.log(name)[-LAST_LINES:])
                self._problems.append(f"{name} has ended by itself, and was restarted:\n{last}")

    def _has_missed_the_store(self, name: str) -> bool:
        """Whether the broker has failed to start since the last call because etcd was down. It ends then, and its
        service starts it again."""
        failures = sum(NO_STORE in line and START_FAILED in line for line in self._brokers.log(name))
        missed = failures > self._start_failures.get(name, 0)
        self._start_failures[name] = failures
        self.counts["started without a store"] += missed
        return missed

    # --- brokers ---

    async def kill_broker(self, office: str, number: int, for_s: float) -> None:
        name = await self._holder(office, number)
        await self._brokers.down(name, signal.SIGKILL)
        await asyncio.sleep(for_s)
        await self._brokers.up(name)

    async def kill_all(self, for_s: float) -> None:
        """Kill all brokers at the same time. Unsynced data stays in the kernel's cache."""
        await asyncio.gather(*[self._brokers.down(name, signal.SIGKILL) for name in self._brokers.names])
        await asyncio.sleep(for_s)
        for name in self._brokers.names:
            await self._brokers.up(name)

    async def terminate_broker(self, office: str, number: int, for_s: float) -> None:
        name = await self._holder(office, number)
        await self._stop(name)
        await asyncio.sleep(for_s)
        await self._brokers.up(name)

    async def _stop(self, name: str) -> None:
        status = await self._brokers.down(name, signal.SIGTERM)
        if status != 0:
            if status == 1 and self._has_missed_the_store(name):
                return
            if status == -signal.SIGTERM and not self._brokers.has_logged(name):
                self.counts["stopped before it could log"] += 1  # the process has not set its handler yet
                return
            last = "\n".join(self._brokers.log(name)[-LAST_LINES:])
            self._problems.append(f"SIGTERM: {name} has exit status {status}:\n{last}")

    async def pause_broker(self, office: str, number: int, for_s: float) -> None:
        await self._brokers.pause(await self._holder(office, number), for_s)

    async def rolling_restart(self) -> None:
        """Restart each broker in turn under load, without other faults. Checks the 99th percentile of latencies."""
        await self.finish()
        await self._in_sync()
        async with LatencyProbe(self._bootstrap()) as probe:
            for name in self._brokers.names:
                await self._stop(name)
                await self._brokers.up(name)
                await self._in_sync()
        p99_s, worst_s = probe.percentile_s(0.99), probe.percentile_s(1.0)
        self.notes.append(
            f"rolling restart: {len(probe.latencies_s)} records, p99 {p99_s:.2f} s, worst {worst_s:.2f} s"
        )
        if p99_s > ROLLING_P99_S:
            self._problems.append(f"rolling restart: p99 of produce latency is {p99_s:.2f} s")

    # --- the store ---

    async def restart_etcd(self, clean: bool, for_s: float) -> None:
        await self._brokers.down(ETCD, signal.SIGTERM if clean else signal.SIGKILL)
        await asyncio.sleep(for_s)
        await self._brokers.up(ETCD)

    async def pause_etcd(self, for_s: float) -> None:
        await self._brokers.pause(ETCD, for_s)

    # --- the network ---

    async def cut(self, ends: list[str], one_way: bool, for_s: float) -> None:
        async with self._network:
            await self._cluster.partition(ends[0], ends[1], one_way=one_way)
        await asyncio.sleep(for_s)
        await self._heal(*ends)

    async def _heal(self, *ends: str) -> None:
        async with self._network:
            await self._cluster.heal(*ends)

    async def isolate(self, office: str, number: int, for_s: float) -> None:
        """Cut a broker off from the other brokers, etcd and clients."""
        name = await self._holder(office, number)
        async with self._network:
            await self._cluster.isolate(name)
        await asyncio.sleep(for_s)
        await self._heal(name)

    async def cut_clients(self, office: str, number: int, way: str, for_s: float) -> None:
        """Drop the packets from clients to a broker, from the broker to clients, or both. Other brokers reach it."""
        name = await self._holder(office, number)
        source, target = (name, HOST) if way == "answers" else (HOST, name)
        async with self._network:
            await self._cluster.partition(source, target, one_way=way != "both")
        await asyncio.sleep(for_s)
        await self._heal(name, HOST)

    # --- the broker to choose ---

    def _bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._brokers.addresses.values())

    async def _holder(self, office: str, number: int) -> str:
        """The service with this role now, such as "leader" or "controller". Any broker if no broker has the role, or if
        the cluster cannot be read.
        """
        names = self._brokers.names
        try:
            async with asyncio.timeout(3), ClusterObserver(self._brokers.addresses) as see:
                found = await self._holder_id(see, office, number)
        except (*LOST, NotReadable):
            found = -1
        name = f"broker-{found}" if f"broker-{found}" in names else names[number % len(names)]
        self._say(f"    {name}")
        return name

    async def _holder_id(self, see: ClusterObserver, office: str, number: int) -> int:
        if office == "controller":
            return int(see.metadata.controller_id)
        if office == "leader":
            leaders: list[tuple[Place, int]] = sorted(see.leaders().items())
            return leaders[number % len(leaders)][1] if leaders else -1
        names: list[str] = []
        if office == "transactions":
            names = [each.plan.transactional_id for each in self._workers.values() if each.plan.transactional_id]
        elif office == "group":
            names = [each.plan.group for each in self._workers.values() if each.plan.group]
        if not names:
            return -1
        return await see.coordinator(names[number % len(names)], GROUP if office == "group" else TRANSACTION)

    async def _in_sync(self) -> None:
        if left := await in_sync(self._brokers.addresses, SYNC_S):
            self._problems.append(f"after {SYNC_S:g} s: {left}")
