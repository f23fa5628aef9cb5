"""Three brokers and their etcd as processes: the services of docker-compose.yml with the settings of a round.

They run in network namespaces if this user may create them; then the network between two of them can be cut. Otherwise
they run at loopback addresses.
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
    """The processes, from `start` to `close`. Names of services: "etcd", "broker-1", "broker-2", ..."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        project = project_of(ROOT / "docker-compose.yml", settings)
        self.names = [name for name in project.services if name.startswith("broker-")]
        self.cluster = Cluster(project, folder, choice.place(project, folder))
        self.starts: dict[str, int] = dict.fromkeys([*self.names, ETCD], 1)
        """The number of starts of each service, without the restarts by its restart policy."""

    @property
    def can_be_cut(self) -> bool:
        return self.cluster.place.partitions

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Node id -> host and port at which the broker listens for clients."""
        return {node_id(name): (self.cluster.address(name), self._port(name)) for name in self.names}

    def _port(self, name: str) -> int:
        words = compose.words(self.cluster.project.services[name].command)
        return next(int(word.partition("=")[2]) for word in words if word.startswith("--port="))

    async def start(self) -> None:
        await self.cluster.open()
        for name in self.names:  # advertise an address that is valid for clients on this machine, too
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
        """Start a service, if it is stopped."""
        if self.cluster.services[name].down:
            self.starts[name] += 1
            await self.cluster.start(name)

    async def down(self, name: str, number: signal.Signals) -> int:
        """Send a service SIGKILL, or else its stop signal. Returns its exit status."""
        service = self.cluster.services[name]
        if not service.down:
            await (service.kill() if number is signal.SIGKILL else service.stop())
        return service.exit_status or 0

    async def pause(self, name: str, for_s: float) -> None:
        """Send SIGSTOP, and SIGCONT after `for_s` if the process still runs."""
        service = self.cluster.services[name]
        if service.up:
            await service.pause()
            await asyncio.sleep(for_s)  # the length of the pause
            if service.up:
                await service.unpause()

    def restarted(self) -> list[str]:
        """The services that have ended by themselves and were restarted by their policy, each returned once."""
        found = []
        for name, service in self.cluster.services.items():
            if service.starts > self.starts[name]:
                self.starts[name] = service.starts
                found.append(name)
        return found

    async def close(self) -> None:
        """Send SIGKILL to all services, and close the cluster."""
        for service in self.cluster.services.values():
            if service.up:
                await service.kill()
        await self.cluster.close()

    def keep(self, target: Path) -> None:
        """Move data and logs to `target`."""
        if target != self.folder:
            shutil.move(self.folder, target)


def node_id(name: str) -> int:
    return int(name.rpartition("-")[2])


def project_of(file: Path, settings: dict[str, str]) -> compose.Project:
    """The compose file with these settings for the brokers. No port is published: clients use the brokers' addresses.
    The brokers have no health checks: the round checks them itself."""
    project = compose.load(file, {})
    for name, service in project.services.items():
        service.ports = []
        if name.startswith("broker-"):
            replaced = ("--advertised-host=", *(f"--set={key}=" for key in settings))
            words = [word for word in compose.words(service.command) if not word.startswith(replaced)]
            service.command = [*words, *(f"--set={key}={value}" for key, value in settings.items())]
            service.healthcheck = None
    return project
