"""EDGE: a whole broker inside the process of a test: with a thread and event loop of its own, and its disk in memory.

    with EphemeralBroker() as broker:
        client = AnyKafkaClient(bootstrap_servers=broker.bootstrap_servers)

It is the broker that `semel serve` runs, on a disk in memory. Because of its own thread, any client in the test can use
it: blocking clients, clients with threads, and clients in the event loop of the test. Its clocks stay real when a test
freezes time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from semel_protocol.errors import KafkaError
from semel_storage.disk.disk import MissingFile
from semel_storage.disk.memory_disk import MemoryDisk

from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import BrokerConfig, load
from semel_broker.net.loop_errors import is_of_a_closed_connection
from semel_broker.net.peer_tls import ClientTls
from semel_broker.net.tls_session import ServerTls
from semel_broker.node import Node
from semel_broker.security.sasl.jwks_source import read_jwks
from semel_broker.security.user_store import puts_of_password
from semel_broker.telemetry.otlp import otlp_reader
from semel_broker.testing.real_clocks import RealTimeLoop, monotonic, now_ms
from semel_broker.testing.security import USER, BrokerSecurity, ClientName, SecurityName
from semel_broker.world import World

if TYPE_CHECKING:
    from semel_broker.metrics.server import MetricsServer

T = TypeVar("T")

DATA = "data"
END_S = 30
LOG_LINES_MAX = 1_000
TEST_SETTINGS: Mapping[str, object] = {
    "durability": "os",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
"""Settings that differ from the defaults of `semel serve`, so that tests do not wait: no fsync (the disk is memory), no
delay for the first member of a group, and transactions that time out within 0.1 s of their timeout instead of 10 s."""


class EphemeralBroker:
    """A broker that runs for the `with` block, or from `start` to `stop`; safe to use from any thread.

    `settings`: the broker's settings under Kafka's names (`{"num.partitions": 3}`); they override `TEST_SETTINGS`. The
    broker can be stopped or killed and started again: it keeps its data and its port.

    `security`: "tls" for TLS, "scram" for users with passwords, "scram+tls" or "plain+tls" for both. TLS needs
    `semel[tls-dev]`. `client_settings` has the arguments for clients. With TLS, `ssl_cafile` is the CA for clients, and
    `ssl_certfile` a certificate with its key that a client may show (CN=client). With users, the broker has the user
    "test", who may do everything, and an authorizer: other users need ACLs.
    """

    host = "127.0.0.1"

    def __init__(self, settings: Mapping[str, object] | None = None, security: SecurityName = "plaintext") -> None:
        self._security = BrokerSecurity(security, self.host)
        self.ssl_cafile, self.ssl_certfile = self._security.ssl_cafile, self._security.ssl_certfile
        secured = self._security.broker_settings
        self.settings = {"port": 0, **TEST_SETTINGS, **secured, **(settings or {}), "log.dir": DATA}
        self._disk = MemoryDisk()
        self._run: _NodeRun | None = None
        self._log = StandardLogger()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"<EphemeralBroker at {self.host}:{self.settings['port'] or 'a free port'}, {state}>"

    @property
    def port(self) -> int:
        """The port to connect to; chosen by the first start, unless the setting `port` gives one."""
        port = self.settings["port"]
        assert port, "the broker has not been started: use `with EphemeralBroker() as broker:` or start()"
        return int(str(port))

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: "127.0.0.1:PORT"."""
        return f"{self.host}:{self.port}"

    @property
    def metrics_port(self) -> int:
        """The port of metrics and health, which the setting `metrics.listener` (\"127.0.0.1:0\") opens here."""
        metrics = self._running().metrics
        assert metrics is not None, "the broker has no metrics: give it the setting metrics.listener"
        return metrics.port

    @property
    def is_running(self) -> bool:
        return self._run is not None

    @property
    def log(self) -> list[str]:
        """The last lines of the broker's log, from level INFO on; the oldest first."""
        return list(self._log.lines)

    @property
    def node(self) -> Node:
        """The running node. It belongs to the broker's event loop: use it only through `call`."""
        return self._running().node

    def start(self) -> EphemeralBroker:
        """Start the broker; return when clients can connect. Raises ConfigError for an invalid setting."""
        assert self._run is None, "the broker runs already; stop() it first"
        config = load(overrides=[f"{name}={_text(value)}" for name, value in self.settings.items()])
        world = World(
            now_ms=now_ms,
            monotonic=monotonic,
            rng=SystemRandom(),
            disk=self._disk,
            log=self._log,
            load_tls=lambda settings: ServerTls(settings, self._log),
            read_jwks=read_jwks,
            read_otlp=otlp_reader() if self.settings.get("metrics.listener") else None,
            load_peer_tls=lambda settings: ClientTls(settings, self._log),
        )
        self._run = _NodeRun(
            lambda: Node.start(config, world, first_user=self._security.first_user), self._metrics(config)
        )
        try:
            self.settings["port"] = self._run.begin().port
        except BaseException:
            self._run = None
            raise
        return self

    def _metrics(self, config: BrokerConfig) -> MetricsServer | None:
        """The listener of metrics, if the settings ask for one."""
        if not self.settings.get("metrics.listener"):
            return None
        from semel_broker.config.listeners import metrics_address
        from semel_broker.metrics.server import MetricsServer  # needs h11

        address = metrics_address(config)
        assert address is not None
        return MetricsServer(address, self._log)

    def stop(self) -> None:
        """Shut down cleanly, as by SIGTERM: requests in progress are answered, logs are synced."""
        run, self._run = self._run, None
        if run is not None:
            run.end(clean=True)

    def kill(self) -> None:
        """Stop at once, as by SIGKILL: connections drop without a shutdown. Written data stays."""
        run, self._run = self._run, None
        if run is not None:
            run.end(clean=False)
            self._disk.kill()

    def restart(self) -> None:
        """`stop` and `start` with the same data and address."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = -1, **configs: object) -> None:
        """Create a topic. Settings are written with `_` for `.`: `create_topic("prices", 3, cleanup_policy="compact")`.

        `partitions` -1: num.partitions. Clients can create topics, too, also by their first use
        (auto.create.topics.enable). Raises semel_protocol's KafkaError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG, ...
        """
        __tracebackhide__ = True  # the report of a test ends at the line of the test
        settings = {key.replace("_", "."): _text(value) for key, value in configs.items()}
        new = NewTopic(name=name, partitions=partitions, configs=settings)
        try:
            self.call(lambda node: node.broker.topics.create(new))
        except KafkaError as error:
            raise error.with_traceback(None) from None

    def client_settings(self, client: ClientName = "semel", user: str = USER) -> dict[str, Any]:
        """The arguments for a client of this broker: address, protocol, CA, user and password, under its names.

        `client`: "semel", "aiokafka", "confluent-kafka" or "kafka-python". `user`: "test", or one that `create_user`
        has made; without SASL it is not used. Raises ValueError for another client or user.
        """
        if self._security.passwords and user not in self._security.passwords:
            raise ValueError(f"create_user() has not made the user {user!r}")
        return self._security.client_settings(client, self.bootstrap_servers, user)

    def create_user(self, name: str, password: str) -> None:
        """Make a user, or change its password. Needs a broker with SASL: `security="scram"`.

        The user has no rights until ACLs give it some. Raises semel_protocol's KafkaError: UNACCEPTABLE_CREDENTIAL.
        """
        __tracebackhide__ = True
        assert self._security.passwords, 'the broker has no users: give it security="scram", "scram+tls" or "plain+tls"'

        async def create(node: Node) -> None:
            node.broker.users.check_name(name)
            await node.broker.users.alter(puts_of_password(name, password, node.broker.world))

        self.call(create)
        self._security.passwords[name] = password

    def call(self, function: Callable[[Node], Awaitable[T]]) -> T:
        """Run `function(node)` in the broker's event loop and return its result. Blocks the caller, at most END_S."""
        run = self._running()

        async def call() -> T:
            return await function(run.node)

        return asyncio.run_coroutine_threadsafe(call(), run.loop).result(END_S)

    def save(self, directory: Path) -> Path:
        """Write the present data directory to disk, for `semel log dump` and `semel serve --data-dir`.

        Stop the broker first for the state after a clean shutdown. Returns `directory`.
        """
        return _copy(self._disk, DATA, directory)

    def __enter__(self) -> EphemeralBroker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def _running(self) -> _NodeRun:
        assert self._run is not None, "the broker does not run; start() it first"
        return self._run


class _NodeRun:
    """One run of a node: a thread with an event loop, from `begin` to `end`."""

    loop: asyncio.AbstractEventLoop
    node: Node
    _stop: asyncio.Future[bool]

    def __init__(self, start: Callable[[], Awaitable[Node]], metrics: MetricsServer | None) -> None:
        self._start = start
        self.metrics = metrics
        self._ready: Future[Node] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_thread, name="semel-broker", daemon=True)

    def begin(self) -> Node:
        """Wait until the node serves. Raises the exception of a failed start."""
        self._thread.start()
        try:
            return self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def end(self, *, clean: bool) -> None:
        """Stop the node and wait until its thread has ended. Raises the exception of a failed stop."""
        self.loop.call_soon_threadsafe(self._stop.set_result, clean)
        self._ended.result(END_S)
        self._thread.join(END_S)

    def _run_thread(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # raised again in the thread that waits
            (self._ended if self._ready.done() else self._ready).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(_log_loop_error)
        self._stop = self.loop.create_future()
        if self.metrics is not None:
            await self.metrics.open()
        self.node = await self._start()
        if self.metrics is not None:
            self.metrics.serve(self.node)
        self._ready.set_result(self.node)
        if await self._stop:
            await self.node.stop()
        else:
            await self.node.server.abort()  # the other parts end with the loop
        if self.metrics is not None:
            await self.metrics.close()


class StandardLogger:
    """Keeps the last lines of the broker's log, and sends all lines to `logging` (logger "semel_broker")."""

    def __init__(self) -> None:
        self._log = logging.getLogger("semel_broker")
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

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
        exc_info = fields.pop("exc_info", None)
        text = "".join(f" {key}={value}" for key, value in fields.items())
        if level >= logging.INFO:
            self.lines.append(f"{logging.getLevelName(level):<7} {event}{text}")
        self._log.log(level, "%s%s", event, text, exc_info=exc_info)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not is_of_a_closed_connection(context):
        StandardLogger().error("unexpected_error", message=context.get("message"), exc_info=context.get("exception"))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _copy(disk: MemoryDisk, path: str, target: Path) -> Path:
    try:
        target.write_bytes(disk.read_bytes(path))
    except (MissingFile, IsADirectoryError):
        target.mkdir(parents=True, exist_ok=True)
        for name in disk.listdir(path):
            _copy(disk, f"{path}/{name}", target / name)
    return target


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return RealTimeLoop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
