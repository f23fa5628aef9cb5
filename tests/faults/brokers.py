"""An etcd and three brokers as processes, as docker-compose.yml says, with the settings of a round: what faults strike.

In network namespaces where this user may have them, so that the network between two of them can be cut; else on
addresses of loopback.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

from cluster import choice, compose
from cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
ETCD = "etcd"
START_S = 60.0


class Brokers:
    """`async with` is not needed: `start`, then `close`. Names of services: "etcd", "broker-1", "broker-2", ..."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        project = project_of(ROOT / "docker-compose.yml", settings)
        self.names = [name for name in project.services if name.startswith("broker-")]
        self.cluster = Cluster(project, folder, choice.place(project, folder))
        self.starts: dict[str, int] = dict.fromkeys([*self.names, ETCD], 1)
        """How often each was started on purpose."""

    @property
    def can_be_cut(self) -> bool:
        return self.cluster.place.partitions

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where each broker listens for clients, by node id."""
        return {node_id(name): (self.cluster.address(name), self._port(name)) for name in self.names}

    def _port(self, name: str) -> int:
        words = compose.words(self.cluster.project.services[name].command)
        return next(int(word.partition("=")[2]) for word in words if word.startswith("--port="))

    async def start(self) -> None:
        await self.cluster.open()
        for name in self.names:  # an address that holds for clients of this machine, too
            service = self.cluster.project.services[name]
            service.command = [*compose.words(service.command), f"--advertised-host={self.cluster.address(name)}"]
        await self.cluster.up()

    def is_up(self, name: str) -> bool:
        return self.cluster.services[name].up

    def log(self, name: str) -> list[str]:
        return self.cluster.state.log(name).read_text(errors="replace").splitlines()

    def data(self, name: str) -> Path:
        return self.folder / "volumes" / name

    async def up(self, name: str) -> None:
        """Starts it, if it is down."""
        if self.cluster.services[name].down:
            self.starts[name] += 1
            await self.cluster.start(name)

    async def down(self, name: str, number: signal.Signals) -> int:
        """SIGKILL, or its stop signal; returns its exit status."""
        service = self.cluster.services[name]
        if not service.down:
            await (service.kill() if number is signal.SIGKILL else service.stop())
        return service.exit_status or 0

    async def pause(self, name: str, for_s: float) -> None:
        """SIGSTOP, and after a while SIGCONT if it still is there."""
        service = self.cluster.services[name]
        if service.up:
            await service.pause()
            await asyncio.sleep(for_s)  # how long it stands still
            if service.up:
                await service.unpause()

    def died(self) -> list[str]:
        """Who has been started by the restart policy, and so had ended by itself; each is told once."""
        found = []
        for name, service in self.cluster.services.items():
            if service.starts > self.starts[name]:
                self.starts[name] = service.starts
                found.append(name)
        return found

    async def close(self) -> None:
        """SIGKILL for all."""
        for service in self.cluster.services.values():
            if service.up:
                await service.kill()
        await self.cluster.close()

    def keep(self, target: Path) -> None:
        """Data and logs, beside what else a round leaves."""
        if target != self.folder:
            shutil.move(self.folder, target)


def node_id(name: str) -> int:
    return int(name.rpartition("-")[2])


def project_of(file: Path, settings: dict[str, str]) -> compose.Project:
    """The compose file with these settings. Clients of this machine use the brokers' own addresses, so no port is
    taken, and nobody asks for their health but the round itself."""
    project = compose.load(file, {})
    for name, service in project.services.items():
        service.ports = []
        if name.startswith("broker-"):
            replaced = ("--advertised-host=", *(f"--set={key}=" for key in settings))
            words = [word for word in compose.words(service.command) if not word.startswith(replaced)]
            service.command = [*words, *(f"--set={key}={value}" for key, value in settings.items())]
            service.healthcheck = None
    return project
