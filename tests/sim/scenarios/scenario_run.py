"""Plays a scenario in the simulated world: broker and clients are simulated processes in virtual time.

A proxy on a simulated host stands between the clients and the broker. Most steps run the same code as with real
processes (`faults.scenario_run`).
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from broker.wire import Wire
from faults import files
from faults.actor import ActorOptions, StepOutcome
from faults.actor_semel import SemelActor
from faults.observer import Observer
from faults.proxy import Proxy
from faults.scenario_run import FAST, ScenarioRun, Unmet, Unsupported
from scenarios.language import Scenario, ScenarioLine, seconds, size_bytes
from semel_broker.node import Node
from semel_storage.checkpoints import CorruptCheckpoint
from semel_storage.segments.segment import CorruptLog

from sim.broker import DATA, PORT, SimBroker
from sim.client import SimEdge
from sim.disk import SimDisk
from sim.host import Host
from sim.logs import captured
from sim.run import Listener
from sim.world import NS, SimWorld

PROXY_HOST = "stage"
PLAYED_WITHIN_NS = 600 * NS
LOOK_S = 0.01
STARTS_WITHIN_S = 30


class ScenarioBroker(SimBroker):
    """A broker that starts again only when the scenario says so. `refusal`: the reason why it did not start."""

    refusal = ""

    async def _restore_offline(self, node: Node) -> None:
        """Repair nothing: the scenario has the steps."""

    async def _main(self, host: Host) -> None:
        try:
            await super()._main(host)
        except (CorruptLog, CorruptCheckpoint) as error:
            self.refusal = str(error)

    def _ended(self, how: str) -> None:
        self.node = None
        self.refusal = self.refusal or how


class SimProxy(Proxy):
    host, target_host = PROXY_HOST, "broker"


class SimObserver(Observer):
    async def __aenter__(self) -> SimObserver:
        self._wire = await wire()
        return self


class SimActor(SemelActor):
    """semel's client on a simulated host."""

    def __init__(self, settings: ActorOptions, host: Host) -> None:
        super().__init__(settings)
        self._common["edge"] = SimEdge(host)


class SimClient:
    """A client of a scenario; the counterpart of `ClientProcess` for real processes."""

    def __init__(self, settings: ActorOptions, host: Host) -> None:
        self.running: asyncio.Task[StepOutcome] | None = None
        self._settings, self._host = settings, host
        self._actor: SimActor | None = None

    async def start(self) -> StepOutcome:
        self._host.boot(idle)
        self._actor = SimActor(self._settings, self._host)
        return await on_host(self._host, self._actor.start())

    async def do(self, verb: str, words: tuple[str, ...]) -> StepOutcome:
        assert self._actor is not None
        return await on_host(self._host, self._actor.do(verb, list(words)))

    def signal(self, number: signal.Signals) -> None:
        if number is signal.SIGSTOP:
            self._host.pause()
        else:
            self._host.resume()

    async def end(self) -> None:
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        self._host.kill()


class SimScenarioRun(ScenarioRun):
    """`directory`: files are copied there to be damaged, since the damage needs real files."""

    def __init__(self, host: Host, directory: Path, say: Callable[[str], None]) -> None:
        super().__init__(directory, say)
        self._host, self._world = host, host.world
        self._proxy = SimProxy(random.Random(0))
        self._staged: ScenarioBroker | None = None
        self._room: int | None = None

    @property
    def _serving(self) -> ScenarioBroker:
        assert self._staged is not None
        return self._staged

    @property
    def _files(self) -> SimDisk:
        return self._serving.host.disk

    async def _end(self) -> None:
        for client in self._clients.values():
            await client.end()
        await self._proxy.stop()

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        for _ in range(int(STARTS_WITHIN_S / LOOK_S)):
            if holds():
                return
            await asyncio.sleep(LOOK_S)
        raise Unmet(what)

    # The broker

    async def on_start(self, step: ScenarioLine) -> None:
        if self._staged is None:
            host = self._world.host("broker")
            host.disk.weather.full_bytes = self._room
            front = {"advertised.host.name": PROXY_HOST, "advertised.port": self._proxy.port}
            self._staged = ScenarioBroker(host, {**FAST, **front, **step.options})
            self._proxy.target_port = PORT
        broker = self._staged
        broker.refusal = ""
        broker.boot()
        await self._until(lambda: broker.serves or not broker.host.is_running, "it has not started")
        if not broker.serves:
            raise Unmet(broker.refusal)

    async def on_kill(self, step: ScenarioLine) -> None:
        if step.words[0] == "broker":
            self._serving.kill()
        else:
            await super().on_kill(step)

    async def on_terminate(self, step: ScenarioLine) -> None:
        self._serving.terminate()
        await self._until(lambda: not self._serving.host.is_running, "it still runs")

    async def on_pause(self, step: ScenarioLine) -> None:
        if step.words[0] == "broker":
            self._serving.host.pause()
        else:
            await super().on_pause(step)

    async def on_resume(self, step: ScenarioLine) -> None:
        if step.words[0] == "broker":
            self._serving.host.resume()
        else:
            await super().on_resume(step)

    async def on_dies(self, step: ScenarioLine) -> None:
        """Wait for the end of the broker. Only real processes have an exit status, so it is not checked here."""
        await self._until(lambda: not self._serving.host.is_running, "it still runs")

    async def on_refuses(self, step: ScenarioLine) -> None:
        """Assert the refusal and its text. A text that ends in "failed" may differ: a real disk words it."""
        try:
            await self.on_start(step)
        except Unmet as error:
            words = step.options.get("says", "")
            if words not in str(error) and not str(error).endswith("failed"):
                raise
            return
        raise Unmet("it has started")

    async def on_offline(self, step: ScenarioLine) -> None:
        """The broker must start without a partition, and its error must contain `says`."""
        await self.on_start(step)
        reasons = [each.offline_reason for node in self._serving.nodes() for each in node.broker.topics.here()]
        if not any(reason and step.options.get("says", "") in reason for reason in reasons):
            raise Unmet("; ".join(filter(None, reasons)) or "all partitions are served")

    # The disk

    async def on_disk(self, step: ScenarioLine) -> None:
        self._room = size_bytes(step.words[0])

    async def on_fill(self, step: ScenarioLine) -> None:
        self._files.weather.full_bytes = self._files.used_bytes()

    async def on_free(self, step: ScenarioLine) -> None:
        self._files.weather.full_bytes = self._room

    async def on_damage(self, step: ScenarioLine) -> None:
        topic, partition, how, kind, *number = step.words
        with_files(
            self._files,
            self._directory,
            lambda data: files.damage(
                files.file_of(data, topic, int(partition), kind), how, int(number[0]) if number else 0
            ),
        )

    async def on_forge(self, step: ScenarioLine) -> None:
        epoch = int(step.options["epoch"])
        with_files(self._files, self._directory, lambda data: files.forge_epoch(data, step.words[0], epoch))

    # Topics, clients and observers

    async def on_topic(self, step: ScenarioLine) -> None:
        connection = await wire()
        await connection.create_topic(step.words[0], int(step.words[1]), **step.options)
        await connection.close()

    async def on_drop(self, step: ScenarioLine) -> None:
        connection = await wire()
        await connection.delete_topic(step.words[0])
        await connection.close()

    async def on_client(self, step: ScenarioLine) -> None:
        name, given = step.words[0], step.options
        if given.get("library", "semel") != "semel":
            raise Unsupported(f"{given['library']} runs in real processes only")
        settings = ActorOptions(
            name=name,
            bootstrap=f"{PROXY_HOST}:{self._proxy.port}",
            transactional_id=given.get("id"),
            timeout_ms=round(seconds(given.get("timeout", "60s")) * 1000),
            patience_s=seconds(given.get("patience", "10s")),
            group=given.get("group"),
            topic=given.get("topic"),
        )
        client = SimClient(settings, self._world.host(name))
        self._clients[name] = client  # type: ignore[assignment]  # same methods as a process
        self._check_outcome(step, await client.start())

    def _observer(self) -> Observer:
        return SimObserver(PORT)


async def idle(host: Host) -> None:
    """The main of a client process: it waits, and other tasks run on its host."""
    await asyncio.get_running_loop().create_future()


async def wire() -> Wire:
    """A connection to the broker that does not go through the proxy."""
    return Wire(*await asyncio.open_connection("broker", PORT))


def on_host(host: Host, doing: Coroutine[Any, Any, StepOutcome]) -> asyncio.Future[StepOutcome]:
    """Run `doing` in the process of another host. The future is never done if that process is killed."""
    assert host.loop is not None
    done: asyncio.Future[StepOutcome] = asyncio.get_running_loop().create_future()

    def tell(task: asyncio.Task[StepOutcome]) -> None:
        if done.done() or task.cancelled():
            return
        error = task.exception()
        if error is None:
            done.set_result(task.result())
        else:
            done.set_exception(error)

    host.loop.create_task(doing).add_done_callback(tell)
    return done


def with_files(disk: SimDisk, directory: Path, change: Callable[[Path], None]) -> None:
    """Copy the files of a disk to `directory`, let `change` change the copies, and take the result back."""
    for path, inode in disk._names.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(inode.data)
    change(directory / DATA)
    for path, inode in list(disk._names.items()):
        if not (directory / path).exists():
            del disk._names[path]
            disk._durable_names.pop(path, None)
        elif (data := (directory / path).read_bytes()) != inode.data:
            inode.data[:] = data
            inode.synced_size = len(data)


def play(scenario: Scenario, directory: Path, say: Callable[[str], None], listener: Listener | None = None) -> SimWorld:
    """Play the scenario and return the world. Raises Unmet, with the line of the scenario, and Unsupported."""
    world = SimWorld(scenario.name, listener)
    met: list[BaseException] = []

    async def main(host: Host) -> None:
        try:
            await SimScenarioRun(host, directory, say).play(scenario)
        except (Unmet, Unsupported) as error:
            met.append(error)

    gc.disable()
    try:
        with captured():
            host = world.host(PROXY_HOST)
            host.boot(main)
            ended = world.run(PLAYED_WITHIN_NS, lambda: not host.is_running)
            world.close()
    finally:
        gc.enable()
    if met:
        raise met[0]
    assert ended, f"{scenario.name} has no end"
    assert not world.failures, "\n".join(map(str, world.failures))
    return world
