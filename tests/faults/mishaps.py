"""What goes wrong in a round: each kind of fault of `plan` as a method of the same name."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from faults import files
from faults.broker import Broker
from faults.crew import Worker
from faults.plan import SERIAL, Fault
from faults.proxy import Direction, Proxy

EMPTY_FILES = ("flip", "truncate")
"""Damages that an empty file cannot take."""
TAIL_BYTES = 200


class Mishaps:
    """`await do(fault)` returns when the next one may come; `await over()` when all have passed.

    `problems`: what must not happen meanwhile. `counts`: how often each kind has happened.
    """

    def __init__(
        self, broker: Broker, proxy: Proxy, crew: dict[str, Worker], rng: random.Random, problems: list[str],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.counts: Counter[str] = Counter()
        self._broker, self._proxy, self._crew, self._rng = broker, proxy, crew, rng
        self._problems, self._say = problems, say
        self._windows: list[asyncio.Task[None]] = []

    async def do(self, fault: Fault) -> None:
        await asyncio.sleep(fault.after_s)
        await self.check_broker()
        self._say(str(fault))
        self.counts[fault.kind] += 1
        doing = getattr(self, fault.kind.replace("-", "_"))(**fault.args)
        if fault.kind in SERIAL:
            await doing
        else:
            self._windows.append(asyncio.create_task(doing))

    async def over(self) -> None:
        await asyncio.gather(*self._windows)

    async def check_broker(self) -> None:
        """A broker that has ended without our doing is a problem, and is started again."""
        if not self._broker.is_running:
            self._problems.append("the broker has ended by itself:\n" + "\n".join(self._broker.log[-15:]))
            await self._broker.up()

    # The broker

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
        """Damages what can be made anew, and puts garbage behind logs. A refusal to start is answered by undoing it."""
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
        try:
            await self._broker.up()
        except RuntimeError as error:
            self.counts["refused to start"] += 1
            if '"event":"start_failed"' not in str(error):
                self._problems.append(f"broken files end in no clear refusal: {error}")
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
        if kind == "log":  # only behind the last segment is it a write that was not finished
            found = list({path.parent: path for path in found}.values())
        return self._rng.choice(found) if found else None

    # The workers

    async def kill_worker(self, whom: str) -> None:
        self._crew[whom].kill()

    async def pause_worker(self, whom: str, for_s: float, replaced: bool) -> None:
        worker = self._crew[whom]
        asleep = worker.present
        asleep.pause()
        await asyncio.sleep(for_s / 2)
        if replaced and worker.present is asleep:
            await worker.start()
        await asyncio.sleep(for_s / 2)
        asleep.resume()
        if replaced:  # a zombie: it goes on for a moment, and is told to end if nothing else ends it
            await asyncio.sleep(1.0)
            asleep.dismiss()

    # The network

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
