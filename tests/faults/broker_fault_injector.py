"""Faults of one broker: its process, its disk and files, and the network, for which a proxy stands."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

from faults import files
from faults.broker import ProxiedBroker
from faults.fault_injector import FaultInjector
from faults.plan import SERIAL
from faults.proxy import Direction, Proxy
from faults.worker_processes import WorkerProcesses

EMPTY_FILES = ("flip", "truncate")
"""Kinds of damage that an empty file cannot have."""
TAIL_BYTES = 200

PARTITION_OFFLINE = '"event":"partition_offline"'


class BrokerFaultInjector(FaultInjector):
    """Injects faults into one broker behind a proxy."""

    serial = SERIAL

    def __init__(
        self,
        broker: ProxiedBroker,
        proxy: Proxy,
        workers: dict[str, WorkerProcesses],
        rng: random.Random,
        problems: list[str],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(workers, rng, problems, say)
        self._broker, self._proxy = broker, proxy

    async def check(self) -> None:
        if not self._broker.is_running:
            self._problems.append("the broker has ended by itself:\n" + "\n".join(self._broker.log[-15:]))
            await self._broker.up()

    async def kill_broker(self, for_s: float) -> None:
        await self._broker.down(signal.SIGKILL)
        await asyncio.sleep(for_s)
        await self._broker.up()

    async def terminate_broker(self, for_s: float) -> None:
        status = await self._broker.down(signal.SIGTERM)
        if status != 0:
            self._problems.append(f"SIGTERM: exit status {status}:\n" + "\n".join(self._broker.log[-15:]))
        await asyncio.sleep(for_s)
        await self._broker.up()

    async def pause_broker(self, for_s: float) -> None:
        self._broker.pause()
        await asyncio.sleep(for_s)
        self._broker.resume()

    async def full_disk(self, for_s: float) -> None:
        disk = self._broker.disk
        assert disk is not None
        disk.fill()
        await asyncio.sleep(for_s)
        is_running = self._broker.is_running
        status = 0 if is_running else await self._broker.died()
        disk.free()
        if not is_running:
            self.counts["died of a full disk"] += 1
            if status != 74:
                self._problems.append(f"full disk: exit status {status}:\n" + "\n".join(self._broker.log[-15:]))
            await self._broker.up()

    async def break_files(self, how: list[tuple[str, str, int]], tails: int, clean: bool) -> None:
        """Stop the broker, damage files that it can rebuild from the logs, append garbage to logs, and start it.

        If the broker refuses to start, or does not serve a partition, the damage is undone.
        """
        await self._broker.down(signal.SIGTERM if clean else signal.SIGKILL)
        before: dict[Path, bytes] = {}
        for what, kind, number in how:
            path = self._some_file(kind)
            if path is not None and not (what in EMPTY_FILES and path.stat().st_size == 0):
                before.setdefault(path, path.read_bytes())
                files.damage(path, what, number)
                self._say(f"    {what} {path.parent.name}/{path.name} {number}")
        for _ in range(0 if clean else tails):
            path = self._some_file("log")
            if path is not None:
                files.damage(path, "append", self._rng.randint(1, TAIL_BYTES))
        seen = len(self._broker.log)
        try:
            await self._broker.up()
            offline = [line for line in self._broker.log[seen:] if PARTITION_OFFLINE in line]
            if offline:
                self.counts["partitions offline"] += len(offline)
                self._say("    " + offline[-1])
                await self._broker.down(signal.SIGKILL)
                for path, data in before.items():
                    path.write_bytes(data)
                await self._broker.up()
        except RuntimeError as error:
            self.counts["refused to start"] += 1
            if '"event":"start_failed"' not in str(error):
                self._problems.append(f"damaged files, and the broker ended without the event start_failed: {error}")
            self._say("    refused: " + str(error).splitlines()[-1])
            for path, data in before.items():
                path.write_bytes(data)
            await self._broker.up()

    def _some_file(self, kind: str) -> Path | None:
        root = self._broker.files
        if kind in files.AT_ROOT:
            found = [path for path in [root / files.AT_ROOT[kind]] if path.exists()]
        else:
            pattern = f"*-*/{kind}" if kind == "leader-epoch-checkpoint" else f"*-*/*.{kind}"
            found = sorted(root.glob(pattern))
        if kind == "log":  # an unfinished write is only possible at the end of the last segment
            found = list({path.parent: path for path in found}.values())
        return self._rng.choice(found) if found else None

    # --- the network ---

    async def reset(self, whom: str) -> None:
        self._proxy.reset(whom)

    async def part(self, whom: str, ways: list[str], for_s: float, then: str) -> None:
        self._proxy.part(whom, *map(Direction, ways))
        await asyncio.sleep(for_s)
        if then == "reset":
            self._proxy.reset(whom)
        self._proxy.join(whom)

    async def delay(self, up_to_s: float, for_s: float) -> None:
        self._proxy.delay_s = (0.0, up_to_s)
        await asyncio.sleep(for_s)
        self._proxy.delay_s = (0.0, 0.0)

    async def cut(self, chance: float, for_s: float) -> None:
        self._proxy.cut_chance = chance
        await asyncio.sleep(for_s)
        self._proxy.cut_chance = 0.0

    async def hold(self, whom: str, api: str, way: str, for_s: float) -> None:
        rule = self._proxy.hold(whom, api, Direction(way))
        await asyncio.sleep(for_s)
        self._proxy.release_rule(rule)

    async def lose(self, whom: str, api: str, way: str) -> None:
        rule = self._proxy.lose(whom, api, Direction(way))
        await asyncio.sleep(5.0)
        self._proxy.release_rule(rule)
