"""EDGE: a whole broker inside the process of a test: its own thread and event loop, a free port, its disk in memory.

    with EphemeralBroker() as broker:
        client = AnyKafkaClient(bootstrap_servers=broker.bootstrap_servers)

It is the same broker that `semel serve` runs, over a disk that takes no time. The thread of its own is what lets
clients of any kind use it from the test: blocking ones, ones with their own threads, and ones in the test's own loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from random import SystemRandom
from time import monotonic, time_ns
from types import TracebackType
from typing import Any, TypeVar

from semel_storage.disk.disk import MissingFile
from semel_storage.disk.memory_disk import MemoryDisk

from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.node import Node
from semel_broker.world import World

T = TypeVar("T")

DATA = "data"
END_S = 30
TEST_SETTINGS: Mapping[str, object] = {
    "durability": "os",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
"""What differs from the defaults of a served broker, so that nobody waits: no fsync (there is no disk to lose), the
first member of a group need not wait for others, and a transaction times out when it says, not up to 10 s later."""


class EphemeralBroker:
    """A broker that lives as long as the `with` block, or from `start` to `stop`; safe to use from any thread.

    `settings`: the broker's, under Kafka's names (`{"num.partitions": 3}`), over `TEST_SETTINGS`. It can be stopped or
    killed and started again: the data and the port stay.
    """

    host = "127.0.0.1"

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self.settings = {"port": 0, **TEST_SETTINGS, **(settings or {}), "log.dir": DATA}
        self._disk = MemoryDisk()
        self._life: _Life | None = None

    @property
    def port(self) -> int:
        """The port to dial; chosen by the first start, unless the setting `port` names one."""
        port = self.settings["port"]
        assert port, "the broker has not been started: use `with EphemeralBroker() as broker:` or start()"
        return int(str(port))

    @property
    def bootstrap_servers(self) -> str:
        """What clients are told: "127.0.0.1:PORT"."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._life is not None

    @property
    def node(self) -> Node:
        """The broker's inside. It belongs to the broker's loop: touch it through `call` only."""
        return self._running().node

    def start(self) -> EphemeralBroker:
        """Returns when clients can connect. Raises ConfigError for a setting that cannot be."""
        assert self._life is None, "the broker runs already"
        config = load(overrides=[f"{name}={_text(value)}" for name, value in self.settings.items()])
        world = World(
            now_ms=lambda: time_ns() // 1_000_000,
            monotonic=monotonic,
            rng=SystemRandom(),
            disk=self._disk,
            log=StandardLogger(),
        )
        self._life = _Life(lambda: Node.start(config, world))
        try:
            self.settings["port"] = self._life.begin().port
        except BaseException:
            self._life = None
            raise
        return self

    def stop(self) -> None:
        """A clean shutdown, as by SIGTERM: what is in progress is answered, logs are synced. Fine when stopped."""
        life, self._life = self._life, None
        if life is not None:
            life.end(clean=True)

    def kill(self) -> None:
        """An end without notice, as by SIGKILL: connections drop, nothing is tidied. What was written stays."""
        life, self._life = self._life, None
        if life is not None:
            life.end(clean=False)
            self._disk.kill()

    def restart(self) -> None:
        """`stop` and `start` over the same data, at the same address."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = -1, **configs: object) -> None:
        """A topic with its settings, `_` for `.`: `create_topic("prices", 3, cleanup_policy="compact")`.

        Without a count it has num.partitions. Clients may create topics too, or find them created at first use
        (auto.create.topics.enable). Raises semel_protocol's KafkaError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG, ...
        """
        settings = {key.replace("_", "."): _text(value) for key, value in configs.items()}
        self.call(lambda node: node.broker.topics.create(NewTopic(name=name, partitions=partitions, configs=settings)))

    def call(self, function: Callable[[Node], Awaitable[T]]) -> T:
        """Runs `function(node)` in the broker's loop and waits for what it gives: a look inside. Blocks the caller."""
        life = self._running()

        async def run() -> T:
            return await function(life.node)

        return asyncio.run_coroutine_threadsafe(run(), life.loop).result(END_S)

    def save(self, directory: Path) -> Path:
        """Writes the data directory as it is now to disk, as `semel log dump` and `semel serve --data-dir` read it.

        Stop the broker first: then it is as after a clean shutdown. Returns `directory`.
        """
        return _copy(self._disk, DATA, directory)

    def __enter__(self) -> EphemeralBroker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def _running(self) -> _Life:
        assert self._life is not None, "the broker does not run; start() it"
        return self._life


class _Life:
    """One run of a node: a thread with a loop, from `begin` to `end`."""

    loop: asyncio.AbstractEventLoop
    node: Node
    _stop: asyncio.Future[bool]

    def __init__(self, start: Callable[[], Awaitable[Node]]) -> None:
        self._start = start
        self._ready: Future[Node] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="semel-broker", daemon=True)

    def begin(self) -> Node:
        """Waits until the node serves; raises what kept it from it."""
        self._thread.start()
        try:
            return self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def end(self, *, clean: bool) -> None:
        """Waits until nothing of the node is left; raises what went wrong on the way."""
        self.loop.call_soon_threadsafe(self._stop.set_result, clean)
        self._ended.result(END_S)
        self._thread.join(END_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._live())
        except BaseException as error:  # for whoever waits in the other thread
            (self._ended if self._ready.done() else self._ready).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(_log_loop_error)
        self._stop = self.loop.create_future()
        self.node = await self._start()
        self._ready.set_result(self.node)
        if await self._stop:
            await self.node.stop()
        else:
            await self.node.server.abort()  # the rest dies with the loop


class StandardLogger:
    """The broker's log lines through `logging` (logger "semel_broker"): pytest shows them beside a failed test."""

    def __init__(self) -> None:
        self._log = logging.getLogger("semel_broker")

    def debug(self, event: str, **fields: object) -> None:
        self._line(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._line(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._line(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._line(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        self._line(logging.ERROR, event, {"exc_info": True, **fields})

    def _line(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._log.isEnabledFor(level):
            exc_info = fields.pop("exc_info", None)
            words = "".join(f" {key}={value}" for key, value in fields.items())
            self._log.log(level, "%s%s", event, words, exc_info=exc_info)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    StandardLogger().error("unexpected_error", what=context.get("message"), exc_info=context.get("exception"))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _copy(disk: MemoryDisk, path: str, target: Path) -> Path:
    try:
        target.write_bytes(disk.read_bytes(path))
    except MissingFile:  # then it is a directory
        target.mkdir(parents=True, exist_ok=True)
        for name in disk.listdir(path):
            _copy(disk, f"{path}/{name}", target / name)
    return target


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
