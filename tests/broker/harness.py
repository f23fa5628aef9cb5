"""A broker in this process: `Harness` starts a node on an ephemeral port over a directory, stops and restarts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from broker.wire import EventLog, Wire, batch, fetch_request, headers_of, produce_request, records_of
from semel_broker.config.loading import load
from semel_broker.net.peer_tls import ClientTls
from semel_broker.net.tls_session import ServerTls
from semel_broker.node import Node
from semel_broker.pushed_points import Point
from semel_broker.world import World
from support.processes import NO_RESERVE
from support.virtual_time import disk_here, loop_time, wall_ms

__all__ = ["EventLog", "Harness", "Wire", "batch", "fetch_request", "headers_of", "produce_request", "records_of"]


class Harness:
    """A node over `directory`; `settings` with `_` for `.` (`auto_create_topics_enable="false"`)."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.log = EventLog()
        self.audit: list[str] = []
        """The lines of the audit log, if `audit_log_file` is given."""
        self.audit_is_behind = False
        """Whether the audit log cannot be written, with `audit.log.required`."""
        self.is_to_stop: Callable[[], bool] = lambda: False
        """Whether a signal to stop comes while the broker starts."""
        self.node: Node | None = None
        self.read_otlp: Callable[[bytes], Iterator[Point]] | None = None
        """Set it before `start`: clients may push metrics then."""
        self._wires: list[Wire] = []

    @property
    def port(self) -> int:
        assert self.node is not None
        return self.node.port

    async def start(self) -> Harness:
        self.directory.mkdir(parents=True, exist_ok=True)
        disk = disk_here()
        world = World(
            now_ms=wall_ms,
            monotonic=loop_time,
            rng=Random(),
            disk=disk,
            sync_seconds=disk.pace.seconds,
            log=self.log,
            is_to_stop=self.is_to_stop,
            audit=self.audit.append if self.settings.get("audit.log.file") else None,
            audit_is_behind=lambda: self.audit_is_behind,
            load_tls=lambda settings: ServerTls(settings, self.log),
            read_jwks=self.read_jwks,
            read_otlp=self.read_otlp,
            load_peer_tls=lambda settings: ClientTls(settings, self.log),
        )
        port = {} if self.settings.get("listeners") else {"port": "0"}
        settings = {"log.dir": str(self.directory), **NO_RESERVE, **port, **self.settings}
        self.node = await Node.start(load(overrides=[f"{key}={value}" for key, value in settings.items()]), world)
        return self

    async def read_jwks(self, location: str, ca_file: str) -> bytes:
        """Read the file in the loop, without a thread. A test may replace this function."""
        return Path(location).read_bytes()

    async def wire(self) -> Wire:
        """A new connection, closed with the harness."""
        wire = await Wire.connect(self.port)
        self._wires.append(wire)
        return wire

    async def stop(self) -> None:
        for wire in self._wires:
            await wire.close()
        self._wires.clear()
        if self.node is not None:
            node, self.node = self.node, None
            await node.stop()

    async def restart(self) -> None:
        """Stop cleanly and start again on the same directory (with a new port)."""
        await self.stop()
        await self.start()
