"""EDGE: `semel serve`: command line, real clock, randomness and disk, uvloop, and signals."""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL, EMFILE, ENFILE, EROFS
from functools import partial
from pathlib import Path
from random import SystemRandom
from time import monotonic, time_ns
from traceback import format_exception
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec
from semel_protocol import __version__, extras

if TYPE_CHECKING:
    from semel_storage.disk.hang_watch import HangWatch
    from semel_storage.disk.os_disk import OsDisk

    from semel_broker.audit_file import AuditFile, AuditStream
    from semel_broker.config.loading import BrokerConfig
    from semel_broker.logging import LogOutput
    from semel_broker.metrics.server import MetricsServer
    from semel_broker.net.open_files import OpenFiles
    from semel_broker.node import Node
    from semel_broker.world import Logger, World

_STARTED = monotonic()
OPEN_FILES_OF_MACOS = 10_240
"""The limit of its kernel, which holds above its own limits (OPEN_MAX)."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
CONSOLE_PORT = 9480
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STOP_LOOK_S = 0.1
"""While the broker starts, between two looks at the signals that wait."""
LAST_LINES_S = 2.0
"""At its end the process waits for its outputs at most so long."""


def _list_settings(ctx: click.Context, _: click.Parameter, form: str | None) -> None:
    if form is None:
        return
    from semel_broker.config.listing import as_markdown, as_toml

    click.echo({"toml": as_toml, "markdown": as_markdown}[form](), nl=False)
    ctx.exit()


@click.command(context_settings={"show_default": True})
@click.option(
    "--data-dir", metavar="PATH", help="Directory for all data of this broker (log.dir). Default: semel-data."
)
@click.option("--host", help="Address to listen on for clients (host.name). Default: 127.0.0.1.")
@click.option("--port", type=int, help="Port to listen on for clients (port); 0 takes a free one. Default: 9092.")
@click.option(
    "--advertised-host",
    help="Address that clients connect to (advertised.host.name). Default: the address listened on.",
)
@click.option(
    "--advertised-port",
    type=int,
    help="Port that clients connect to (advertised.port). Default: the port listened on.",
)
@click.option("--broker-id", type=int, help="Id of this broker, unique in the cluster (node.id). Default: 0.")
@click.option(
    "--etcd",
    metavar="URL[,URL...]",
    help="Join the cluster of brokers that share this etcd (etcd.endpoints). Default: no etcd, a single broker.",
)
@click.option(
    "--cluster",
    help="Name of the cluster (cluster.name). Clusters that share an etcd need different names. Default: semel.",
)
@click.option(
    "--rack", help="Rack of this broker; replicas are spread over racks (broker.rack). Default: without a rack."
)
@click.option(
    "--peer-host", help="Address to listen on for other brokers (peer.host.name). Default: the address of --host."
)
@click.option(
    "--peer-port", type=int, help="Port to listen on for other brokers (peer.port). Default: 0, which takes a free one."
)
@click.option(
    "--advertised-peer-host",
    help="Address that other brokers connect to (advertised.peer.host.name). Default: the address listened on.",
)
@click.option(
    "--advertised-peer-port",
    type=int,
    help="Port that other brokers connect to (advertised.peer.port). Default: the port listened on.",
)
@click.option(
    "--bootstrap-user",
    metavar="NAME",
    envvar="SEMEL_BOOTSTRAP_USER",
    help="Make this user if there are no users yet, with the password in the variable SEMEL_BOOTSTRAP_PASSWORD or in "
    "--bootstrap-password-file. Name it in super.users to give it all rights. Default: no user is made.",
)
@click.option(
    "--bootstrap-password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line is the password of --bootstrap-user. Default: no file.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with settings in TOML; `--settings toml` prints one. Default: no file.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any setting by its Kafka name, such as log.retention.ms=3600000; repeatable.",
)
@click.option(
    "--settings", type=click.Choice(["toml", "markdown"]), callback=_list_settings, expose_value=False, is_eager=True,
    help="Print all settings with their defaults and allowed values, and exit. toml: as a file for --config.",
)  # fmt: skip
@click.option(
    "--console",
    "console_port",
    type=click.IntRange(0, 65_535),
    is_flag=False,
    flag_value=CONSOLE_PORT,
    metavar="[PORT]",
    help="Serve the page of `semel console`, too, on this port of 127.0.0.1. Without a number on port "
    f"{CONSOLE_PORT}; 0 takes a free one. Default: no page.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Log events of this level and above.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    help="console: lines for people; json: one object in each line; auto: console on a terminal, else json.",
)
def serve(
    bootstrap_user: str | None,
    bootstrap_password_file: Path | None,
    config_file: Path | None,
    overrides: tuple[str, ...],
    console_port: int | None,
    log_level: str,
    log_format: Any,
    **flags: Any,
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP.

    The name of each option's setting is in parentheses. Sources of settings, from lowest to highest priority: defaults,
    the --config file, environment variables (SEMEL_LOG_DIR for log.dir), --set, the other options.
    """
    _check_extras(has_console=console_port is not None)
    from semel_broker.config.loading import ConfigError, load
    from semel_broker.logging import is_for_people
    from semel_broker.net.open_files import OpenFiles
    from semel_broker.net.peer_tls import ClientTls
    from semel_broker.net.socket_queue import hung_up, unacknowledged
    from semel_broker.net.tls_session import ServerTls
    from semel_broker.security.sasl.jwks_source import read_jwks
    from semel_broker.security.sasl.password_hashing import PasswordHashing
    from semel_broker.telemetry.otlp import otlp_reader
    from semel_broker.world import World

    given = [f"{SETTING_OF[flag]}={value}" for flag, value in flags.items() if value is not None]
    try:
        toml = _read(config_file) if config_file else None
        config = load(toml, os.environ, [*overrides, *given], file=str(config_file))
        first_user = _first_user(bootstrap_user, bootstrap_password_file)
        _hold_signals()
        output, log, audit = _open_outputs(config, log_level, log_format)
    except ConfigError as error:
        _refuse(str(error), log_format)
    _allow_many_connections()
    files = OpenFiles(log, monotonic)
    close_outputs = partial(_close_outputs, output, audit)
    disk = _make_disk(log, output, close_outputs, files)
    world = World(
        now_ms=lambda: time_ns() // 1_000_000,
        monotonic=monotonic,
        rng=SystemRandom(),
        disk=disk,
        log=log,
        is_to_stop=_is_to_stop,
        log_lost=lambda: output.lost_lines,
        may_keep_descriptor=files.may_keep,
        unacknowledged=unacknowledged,
        hung_up=hung_up,
        audit=None if audit is None else audit.write,
        audit_lost=lambda: 0 if audit is None else audit.lost_lines,
        audit_is_behind=lambda: audit is not None and audit.is_behind(),
        sync_seconds=disk.pace.seconds,
        load_tls=lambda settings: ServerTls(settings, log),
        stretch=PasswordHashing().stretch,
        read_jwks=read_jwks,
        read_otlp=otlp_reader(),
        load_peer_tls=lambda settings: ClientTls(settings, log),
    )
    watch = _watch_for_hangs(config, disk, log, output, close_outputs)
    options = StartOptions(first_user, console_port, is_for_people(log_format, output))
    try:
        status = _run(config, world, files, options, watch)
    except StartFailedError as error:
        _end_start(str(error), log, output, close_outputs)
    close_outputs()
    sys.exit(status)


class StartOptions(msgspec.Struct, frozen=True):
    """`first_user`: name and password of the user that is made if there is none. `console_port`: of the page, if it is
    asked for. `is_for_people`: whether the log has readable lines."""

    first_user: tuple[str, str] | None
    console_port: int | None
    is_for_people: bool


class StartFailedError(Exception):
    """The broker cannot start. The message says why, and what to do."""


def _refuse(message: str, log_format: Any) -> NoReturn:
    """End a start that fails before there is a log: one sentence for people, one event for programs."""
    from semel_broker.audit_file import audit_room
    from semel_broker.logging import LogOutput, is_for_people, make_logger

    output = LogOutput(sys.stdout, audit_room=audit_room(is_required=False))
    if is_for_people(log_format, output):
        raise click.ClickException(message)
    _end_start(message, make_logger("error", log_format, output), output, partial(output.close, LAST_LINES_S))


def _end_start(message: str, log: Logger, output: LogOutput, close_outputs: Callable[[], bool]) -> NoReturn:
    """Log why the broker does not start, and end the process. Standard error says it if its reader sees no log."""
    from semel_storage.disk.last_words import print_last

    log.error("start_failed", error=message)
    if not (close_outputs() and output.is_seen_beside_stderr):
        print_last(f"semel: {message}")
    sys.exit(1)


def _read(file: Path) -> str:
    """The text of a file that an option names. Raises ConfigError if it cannot be read."""
    from semel_broker.config.loading import ConfigError

    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; make it readable for this user, or name another file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not text in UTF-8; save it as UTF-8, or name another file") from None


def _end_signals() -> set[signal.Signals]:
    """The signals that stop the broker."""
    return {number for number in END_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}  # nohup ignores SIGHUP


def _is_to_stop() -> bool:
    """Whether such a signal is pending: see `_hold_signals`."""
    return not _end_signals().isdisjoint(signal.sigpending())


def _hold_signals() -> None:
    """Keep the signals that stop the broker pending until it serves; threads that are started now inherit this.

    While the loop waits for the disk, no handler runs. `HangWatch` sees that a signal is pending.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _end_signals())


def _watch_for_hangs(
    config: BrokerConfig, disk: OsDisk, log: Logger, output: LogOutput, close_outputs: Callable[[], bool]
) -> HangWatch:
    """Begin to watch the disk on a thread, while the loop cannot."""
    from semel_storage.disk.hang_log import HangLog
    from semel_storage.disk.hang_watch import HangWatch

    limit_s = config.disk_hang_timeout_ms / 1000
    watch = HangWatch(
        disk,
        HangLog(limit_s, monotonic, problem=log.error, event=log.warning),
        limit_s,
        is_to_stop=_is_to_stop,
        end=lambda message: _end_for_disk(log, output, close_outputs, message),
    )
    watch.start()
    return watch


def _open_outputs(
    config: BrokerConfig, log_level: str, log_format: Any
) -> tuple[LogOutput, Logger, AuditFile | AuditStream | None]:
    """Standard output, the log in it, and the audit log. Raises ConfigError if the audit log cannot be opened."""
    from semel_broker.audit_file import audit_room, open_audit
    from semel_broker.logging import LogOutput, make_logger
    from semel_broker.output.python_messages import route

    is_required = config.audit_log_required
    output = LogOutput(sys.stdout, audit_room=audit_room(is_required=is_required))
    log = make_logger(log_level, log_format, output)
    route(log.warning, log.error)
    return output, log, open_audit(config.audit_log_file, log, output, is_required=is_required)


def _close_outputs(output: LogOutput, audit: AuditFile | AuditStream | None) -> bool:
    """Write the lines that wait, for a bounded time: the process ends. Returns whether those of the log are written."""
    if audit is not None:
        audit.close(LAST_LINES_S)
    return output.close(LAST_LINES_S)


def _run(config: BrokerConfig, world: World, files: OpenFiles, options: StartOptions, watch: HangWatch) -> int:
    """Run the broker; return the exit status. Raises StartFailedError.

    An unexpected error is printed here: Python's own report could hang.
    """
    from semel_storage.disk.last_words import print_last

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(config, world, files, options, watch))
    except StartFailedError:
        raise
    except Exception as error:
        world.log.error("ended_by_error", exc_info=error)
        print_last("".join(format_exception(error)).rstrip())
        return 1


def _make_disk(log: Logger, output: LogOutput, close_outputs: Callable[[], bool], files: OpenFiles) -> OsDisk:
    """The disk of the broker, whose troubles are events in the log."""
    from semel_storage.disk.os_disk import OsDisk

    disk = OsDisk(lambda message: _end_for_disk(log, output, close_outputs, message))
    disk.on_used_up = files.log_used_up
    disk.on_not_removed = lambda path, error: log.error("directory_not_removed", directory=path, error=str(error))
    disk.on_reserve_given_up = lambda path: log.error(
        "disk_reserve_given_up", file=path, do="free space: when the reserve is used up, too, the broker ends"
    )
    return disk


def _end_for_disk(log: Logger, output: LogOutput, close_outputs: Callable[[], bool], message: str) -> NoReturn:
    """End the process after a failed write; the log has the reason as its last line, unless its output hangs."""
    from semel_storage.disk.os_disk import EXIT_STATUS, WHAT_TO_DO, end_process

    log.error("disk_failed", error=message, do=WHAT_TO_DO)
    if not (close_outputs() and output.is_seen_beside_stderr):
        end_process(message)
    os._exit(EXIT_STATUS)


SETTING_OF = {
    "data_dir": "log.dir",
    "host": "host.name",
    "port": "port",
    "advertised_host": "advertised.host.name",
    "advertised_port": "advertised.port",
    "broker_id": "node.id",
    "etcd": "etcd.endpoints",
    "cluster": "cluster.name",
    "rack": "broker.rack",
    "peer_host": "peer.host.name",
    "peer_port": "peer.port",
    "advertised_peer_host": "advertised.peer.host.name",
    "advertised_peer_port": "advertised.peer.port",
}


async def _serve(config: BrokerConfig, world: World, files: OpenFiles, options: StartOptions, watch: HangWatch) -> int:
    import semel_broker.net.loop_errors  # noqa: F401 (once files are used up, the handler below could not read it)
    from semel_broker.console_process import ConsoleProcess
    from semel_broker.frozen_heap import FrozenHeap

    log = world.log
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = _end_signals()
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    loop.set_exception_handler(lambda _, context: _log_loop_error(world, files, context))
    metrics: MetricsServer | None = None
    try:
        metrics, metrics_warning = await _open_metrics(config, log)
        if metrics is None:
            world = msgspec.structs.replace(world, read_otlp=None)
        node = await _started(config, world, options.first_user)
    except Exception as error:
        text = _start_failure(config, error)
        if metrics is not None:
            await metrics.close()
        if text is None:
            raise
        raise StartFailedError(text) from error
    if node is None:
        if metrics is not None:
            await metrics.close()
        log.info("stopped_before_ready")
        return 0
    watch.has_told = lambda: node.broker.topics.local.hangs.is_hanging
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    FrozenHeap(loop).start()  # objects that live as long as the broker need no further collection
    if metrics is not None:
        metrics.serve(node)  # from now on it watches for stalls, and the collection was one
    _log_ready(config, node, metrics, log, _next_steps(config, node) if options.is_for_people else {})
    files.check_start(sum(config.node_id in view.replicas for view in node.broker.feed.image.partitions()))
    if metrics_warning is not None:
        event, facts = metrics_warning
        log.warning(event, **facts)
    _warn_of_settings(config, log, options.first_user)
    port = options.console_port
    page = None if port is None else await ConsoleProcess.start(config, node.port, port)
    await stop.wait()
    watch.stops()
    log.info("stopping")
    if page is not None:
        await page.stop()
    await node.stop()
    if metrics is not None:
        await metrics.close()
    log.info("stopped")
    return 0


def _next_steps(config: BrokerConfig, node: Node) -> dict[str, str]:
    """What a person at the terminal can do now: fields of the line `ready`."""
    first = config.client_listeners[0]
    steps = {"stop": "Ctrl-C"}
    if not (first.has_tls or first.has_sasl):  # else a command needs settings of its own
        steps["try"] = f"semel topic create first -b {node.broker.endpoints[first.name]}"
    return steps


def _log_ready(
    config: BrokerConfig, node: Node, metrics: MetricsServer | None, log: Logger, next_steps: dict[str, str]
) -> None:
    """Say what runs where. For a broker alone this is the first line of its log, unless the start had to repair."""
    log.info(
        "ready",
        version=__version__,
        host=config.client_listeners[0].address.host,
        port=node.port,
        advertised=str(next(iter(node.broker.endpoints.values()))),
        **({"listeners": node.ports} if config.listeners else {}),
        node_id=node.broker.node_id,
        data_dir=config.log_dir,
        durability=config.durability,
        **({} if metrics is None else {"metrics_port": metrics.port}),
        pid=os.getpid(),
        start_ms=round((monotonic() - _STARTED) * 1000),
        **next_steps,
    )


async def _started(config: BrokerConfig, world: World, first_user: tuple[str, str] | None) -> Node | None:
    """Start the broker; None: a signal to stop came first. A start that waits, for example for etcd, is cancelled."""
    from semel_broker.node import Node
    from semel_broker.world import StopRequestedError

    starting = asyncio.create_task(Node.start(config, world, first_user=first_user))
    while not starting.done():
        await asyncio.wait((starting,), timeout=STOP_LOOK_S)
        if not starting.done() and world.is_to_stop():
            starting.cancel()
            await asyncio.wait((starting,))
    try:
        return starting.result()
    except (asyncio.CancelledError, StopRequestedError):
        return None


LogLine = tuple[str, dict[str, Any]]
"""An event of the log, and its fields."""


async def _open_metrics(config: BrokerConfig, log: Logger) -> tuple[MetricsServer | None, LogLine | None]:
    """Open the listener of metrics and health; return a warning, too, for the log of a broker that has started. Raises
    ListenError.

    The default address may be in use by another broker on this machine: then there are no metrics.
    """
    from semel_broker.config.listeners import metrics_address
    from semel_broker.metrics.server import MetricsServer
    from semel_broker.net.server import ListenError

    address = metrics_address(config)
    if address is None:
        return None, None
    server = MetricsServer(address, log)
    try:
        await server.open()
    except ListenError as error:
        if "metrics.listener" in config.given:
            raise
        what_to_do = "give metrics.listener another port, or leave it empty"
        return None, ("metrics_not_served", {"address": str(address), "error": error.strerror, "do": what_to_do})
    if address.host in LOOPBACK:
        return server, None
    facts = {"host": address.host, "port": server.port, "authentication": "none"}
    return server, ("metrics_beyond_loopback", facts)


def _warn_of_settings(config: BrokerConfig, log: Logger, first_user: tuple[str, str] | None) -> None:
    """Say which settings have no effect, and which leave the broker open to others."""
    for warning in config.warnings:
        log.warning("setting_ignored", reason=warning)
    _warn_of_open_listeners(config, log, first_user)
    peers = config.peer_listener
    if config.is_clustered and not peers.has_tls and peers.address.host not in LOOPBACK:
        log.warning(
            "peers_are_not_authenticated",
            host=peers.address.host,
            do="set security.inter.broker.protocol=SSL with broker.principals, or keep other programs off this network",
        )
    if config.etcd_user and any(url.startswith("http://") for url in config.etcd_endpoints):
        log.warning(
            "etcd_password_in_plaintext", user=config.etcd_user, do="use https:// in etcd.endpoints, and TLS in etcd"
        )


def _warn_of_open_listeners(config: BrokerConfig, log: Logger, first_user: tuple[str, str] | None) -> None:
    """Say which clients may do everything."""
    authenticated = [listener.name for listener in config.client_listeners if config.is_authenticated(listener)]
    for listener in config.client_listeners:
        if listener.address.host not in LOOPBACK and listener.name not in authenticated:
            log.warning(
                "listens_beyond_loopback",
                listener=listener.name,
                host=listener.address.host,
                protocol=listener.protocol,
                authentication="none",
            )
    if authenticated and not config.has_authorizer:
        log.warning(
            "no_authorizer",
            listeners=authenticated,
            reason="clients are authenticated, and each of them may do everything",
            do="set authorizer.class.name and super.users",
        )
    if first_user is not None and config.has_authorizer and f"User:{first_user[0]}" not in config.super_user_names:
        log.warning(
            "bootstrap_user_has_no_rights",
            user=first_user[0],
            do=f"add User:{first_user[0]} to super.users, on every broker",
        )


def _first_user(name: str | None, password_file: Path | None) -> tuple[str, str] | None:
    """Name and password of the first user. Raises ConfigError without a password."""
    if not name:
        return None
    from semel_broker.config.loading import ConfigError

    password = os.environ.get("SEMEL_BOOTSTRAP_PASSWORD", "")
    if password_file is not None:
        password = _read(password_file).partition("\n")[0]
    if not password:
        raise ConfigError(
            "--bootstrap-user needs a password: give SEMEL_BOOTSTRAP_PASSWORD or --bootstrap-password-file"
        )
    return name, password


def _start_failure(config: BrokerConfig, error: Exception) -> str | None:
    """The error message for the operator; None for a bug of the broker."""
    from semel_protocol.errors import ErrorCode, KafkaError
    from semel_storage.checkpoints import CorruptCheckpoint
    from semel_storage.disk.disk import DirectoryLocked, FilesUsedUp
    from semel_storage.log_directory import WrongDirectory

    from semel_broker.cluster.local_store import CorruptStoreError
    from semel_broker.cluster.store import StoreError, StoreUnavailableError
    from semel_broker.config.listeners import metrics_address
    from semel_broker.config.loading import ConfigError
    from semel_broker.net.server import ListenError

    if isinstance(error, ListenError) and error.address == metrics_address(config):
        return (
            f"metrics.listener = {error.address}: {error.strerror}; stop the other process, give another address, or "
            "leave the setting empty"
        )
    where = str(error.address) if isinstance(error, ListenError) else f"{config.host_name}:{config.port}"
    port, host = ("in listeners", "in listeners") if config.listeners else ("with --port", "with --host")
    match error:
        case KafkaError() if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            return str(error)
        case DirectoryLocked() | WrongDirectory() | ConfigError():
            return str(error)
        case FilesUsedUp():
            return f"the limit of open files is reached ({error}); raise it (ulimit -n)"
        case CorruptCheckpoint() | CorruptStoreError():
            return str(error)
        case StoreUnavailableError():
            return (
                f"the cluster's store cannot be reached: {error}; check that etcd runs and that etcd.endpoints names it"
            )
        case StoreError():
            return f"the cluster's store cannot be used: {error}"
        case OSError(errno=errno) if errno == EADDRINUSE:
            return f"{where} is in use by another process; stop it, or choose another port {port}"
        case OSError(errno=errno) if errno == EADDRNOTAVAIL:
            return f"{where}: this machine has no such address; give one of its addresses {host}"
        case OSError(errno=errno, filename=None) if errno == EACCES:
            return f"{where}: not permitted ({error}); choose another port {port}"
        case ListenError():
            return f"{where}: cannot listen there ({error.strerror}); give an address of this machine {host}"
        case OSError(errno=errno, filename=str() as file) if errno in (EACCES, EROFS) or _is_data_path(file, config):
            return f"{file}: {error.strerror}; give --data-dir a directory that this user may write to"
        case OSError(filename=str() as file) if Path(file).is_relative_to(config.log_dir):
            return f"{file}: {error.strerror}; repair it, or restore it from a copy of the data directory"
    return None


def _is_data_path(file: str, config: BrokerConfig) -> bool:
    """Whether `file` is the data directory, a directory above it, or its lock file."""
    from semel_storage.disk.os_disk import LOCK_FILE

    home = Path(config.log_dir)
    return home.is_relative_to(file) or (Path(file).parent == home and Path(file).name == LOCK_FILE)


def _allow_many_connections() -> None:
    """Raise the soft limit of open files: each connection and each log takes one; the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS: the hard limit is infinite, and the kernel allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, OPEN_FILES_OF_MACOS), hard))


def _log_loop_error(world: World, files: OpenFiles, context: dict[str, Any]) -> None:
    from semel_broker.net.loop_errors import is_of_a_closed_connection

    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (EMFILE, ENFILE):
        files.log_limited("accepting_failed", error=str(error))
        return
    if is_of_a_closed_connection(context):
        world.log.debug("tls_write_to_closed_connection")
        return
    world.log.error("unexpected_error", message=context.get("message"), exc_info=error)


def _check_extras(*, has_console: bool) -> None:
    _check_extra("`semel serve`", "broker", "structlog", "h11", *(() if sys.platform == "win32" else ("uvloop",)))
    if has_console:
        _check_extra("`semel serve --console`", "console", "starlette", "uvicorn")


def _check_extra(user: str, extra: str, *packages: str) -> None:
    """Raise ClickException, which says what to install, if one of the packages of an extra is missing."""
    for name in packages:
        try:
            importlib.import_module(name)
        except ImportError:
            raise click.ClickException(extras.missing(user, name, extra)) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    serve()
