"""Three brokers and their etcd as processes: the services of docker-compose.yml with the settings of a round.

They run in network namespaces if this user may create them; then the network between two of them can be cut. Otherwise
they run at loopback addresses.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

from demo import client_settings
from tools.cluster import choice, compose, secured
from tools.cluster.cluster import RunningProject

ROOT = Path(__file__).parents[2]
ETCD = "etcd"
START_S = 60.0


class BrokerProcesses:
    """The processes, from `start` to `close`. Names of services: "etcd", "broker-1", "broker-2", ..."""

    def __init__(self, folder: Path, settings: dict[str, str], *, secure: bool = False) -> None:
        self.folder = folder
        self._secrets = folder.parent / "tls" if secure else None
        project = (
            compose.load(ROOT / "docker-compose.yml", {}) if self._secrets is None else secured.project(self._secrets)
        )
        change(project, settings)
        self.names = [name for name in project.services if name.startswith("broker-")]
        self.cluster = RunningProject(project, folder, choice.place(project, folder))
        self.starts: dict[str, int] = dict.fromkeys(project.services, 1)
        """The number of starts of each service, without the restarts by its restart policy."""
        self._log_bytes: dict[str, int] = {}

    @property
    def can_be_cut(self) -> bool:
        return self.cluster.place.partitions

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Node id -> host and port at which the broker listens for clients."""
        return {node_id(name): (self.cluster.address(name), self._port(name)) for name in self.names}

    def _port(self, name: str) -> int:
        service = self.cluster.project.services[name]
        if self._secrets is not None:
            return secured.client_port(service)
        words = compose.words(service.command)
        return next(int(word.partition("=")[2]) for word in words if word.startswith("--port="))

    async def start(self) -> None:
        await self.cluster.open()
        for name in self.names:  # advertise an address that is valid for clients on this machine, too
            service = self.cluster.project.services[name]
            if self._secrets is None:
                service.command = [*compose.words(service.command), f"--advertised-host={self.cluster.address(name)}"]
        self._secure()
        await self.cluster.up()

    def _secure(self) -> None:
        """Write the file of settings for clients, name it for this process and its children, and let the brokers
        advertise their own addresses.
        """
        if self._secrets is None:
            os.environ.pop(client_settings.VARIABLE, None)
            return
        addresses = [f"{host}:{port}" for host, port in self.addresses.values()]
        os.environ[client_settings.VARIABLE] = str(secured.write_client_settings(self._secrets, addresses).absolute())
        for name in self.names:
            secured.advertise(self.cluster.project.services[name], self.cluster.address(name))

    def is_up(self, name: str) -> bool:
        return self.cluster.services[name].up

    def log(self, name: str) -> list[str]:
        return self.cluster.state.log(name).read_text(errors="replace").splitlines()

    def data(self, name: str) -> Path:
        return self.folder / "volumes" / (name if self._secrets is None else f"secure-{name}")

    async def up(self, name: str) -> None:
        """Start a service, if it is stopped."""
        if self.cluster.services[name].down:
            self.starts[name] += 1
            self._log_bytes[name] = self.cluster.state.log(name).stat().st_size
            await self.cluster.start(name)

    def has_logged(self, name: str) -> bool:
        """Whether a service has logged a line since it was started again."""
        return self.cluster.state.log(name).stat().st_size > self._log_bytes.get(name, 0)

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


def change(project: compose.Project, settings: dict[str, str]) -> None:
    """Give the brokers these settings. No port is published: clients use the brokers' addresses. The brokers have no
    health checks: the round checks them itself.
    """
    for name, service in project.services.items():
        service.ports = []
        if name.startswith("broker-"):
            replaced = ("--advertised-host=", *(f"--set={key}=" for key in settings))
            words = [word for word in compose.words(service.command) if not word.startswith(replaced)]
            service.command = [*words, *(f"--set={key}={value}" for key, value in settings.items())]
            service.healthcheck = None
