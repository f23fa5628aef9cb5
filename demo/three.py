"""EDGE: runs etcd and the three brokers of docker-compose.yml for one demo, as processes on loopback addresses.

A kill chooses a role (leader of a partition, coordinator, controller) and kills the broker that has it. Half of the
killed brokers restart at once, half only after other brokers have taken over.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

from rich.console import Console
from semel import Admin

from demo.brokers import KillTargets, Print
from demo.client_settings import VARIABLE, of_semel
from demo.report import show_broker_kills
from demo.roles import BrokerKill, RoleLookup
from tools.cluster import compose, secured
from tools.cluster.cluster import RunningProject
from tools.cluster.loopback import Loopback
from tools.cluster.places import NotAvailableError

COMPOSE_FILE = Path(__file__).parents[1] / "docker-compose.yml"
TAKE_OVER_S = 60.0
IN_SYNC_S = 120.0
DOWN_S = 0.3
ROLES = ("leader", "coordinator", "leader", "coordinator", "controller")


class ThreeBrokers:
    replicas = 3

    def __init__(self, directory: Path, targets: KillTargets, *, secure: bool = False) -> None:
        self.directory = directory
        self.broker_kills: list[BrokerKill] = []
        self._secrets = directory / "tls" if secure else None
        project = project_of(COMPOSE_FILE) if self._secrets is None else secured.project(self._secrets)
        self._brokers = [name for name in project.services if name.startswith("broker-")]
        self._cluster = RunningProject(project, directory, Loopback(project))
        self._targets = targets
        self._roles_left: list[str] = []
        self._recovery: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._admin: Admin | None = None

    @property
    def data_dir(self) -> Path:
        return self._volume(self._brokers[0])

    def _volume(self, name: str) -> Path:
        return self.directory / "volumes" / (name if self._secrets is None else f"secure-{name}")

    @property
    def address(self) -> str:
        return ",".join(f"{self._cluster.address(name)}:{self._port(name)}" for name in self._brokers)

    def _port(self, name: str) -> int:
        if self._secrets is not None:
            return self._secure_ports[name]
        return port(self._cluster.project, name)

    @property
    def kills(self) -> int:
        return len(self.broker_kills)

    async def start(self) -> str:
        try:
            await self._cluster.open()
            self._secure()
            await self._cluster.up()
        except (compose.ComposeError, NotAvailableError) as error:
            raise SystemExit(str(error)) from error
        self._admin = Admin(**of_semel(self.address))
        await self._admin.start()
        self._lookup = RoleLookup(self._admin, self._targets)
        how = "" if self._secrets is None else " with SCRAM over TLS, mTLS between brokers, ACLs and an etcd with users"
        return f"three brokers on {self.address}{how}, etcd beside them, data in {self.directory}/volumes"

    def _secure(self) -> None:
        """Let secure brokers advertise their own addresses, and name the file of settings for all clients."""
        if self._secrets is None:
            return
        services = self._cluster.project.services
        self._secure_ports = {name: secured.client_port(services[name]) for name in self._brokers}
        for name in self._brokers:
            secured.advertise(services[name], self._cluster.address(name))
        file = secured.write_client_settings(self._secrets, self.address.split(","))
        os.environ[VARIABLE] = str(file.absolute())

    async def kill_one(self, rng: random.Random, announce: Print, say: Print) -> None:
        async with self._changing:
            await self.wait_until_recovered()
            self._roles_left = self._roles_left or rng.sample(ROLES, len(ROLES))
            role, is_back_at_once = self._roles_left.pop(), rng.random() < 0.5
            node_id = await self._lookup.holder_of(role, rng)
            kill = BrokerKill(broker=f"broker-{node_id}", role=role, roles=await self._lookup.roles_of(node_id))
            await self._cluster.kill(kill.broker)
            since = time.monotonic()
            self.broker_kills.append(kill)
            announce(f"{kill.broker} ({kill.roles})")
            self._recovery = asyncio.create_task(self._recover(kill, since, say, is_back_at_once))

    async def _recover(self, kill: BrokerKill, since: float, say: Print, is_back_at_once: bool) -> None:
        if is_back_at_once:
            await asyncio.sleep(DOWN_S)  # the downtime
            await self._cluster.start(kill.broker)
        kill.takeover_s = await self._lookup.wait_for_leaders(kill.roles, since, TAKE_OVER_S)
        if not is_back_at_once:
            await self._cluster.start(kill.broker)
        await self._lookup.wait_for_in_sync(IN_SYNC_S)
        kill.in_sync_s = time.monotonic() - since
        how = "at once" if is_back_at_once else "after the takeover"
        say(
            f"            {kill.broker} restarted {how}; new leaders after {kill.takeover_s:.1f} s, "
            f"all in sync after {kill.in_sync_s:.1f} s"
        )

    async def wait_until_recovered(self) -> None:
        if self._recovery is not None:
            await self._recovery

    async def stop(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        if self._admin is not None:
            await self._admin.close()
        await self._cluster.close()

    def is_sound(self, console: Console, topics: list[str]) -> bool:
        show_broker_kills(console, self.broker_kills)
        starts = {name: 1 + sum(each.broker == name for each in self.broker_kills) for name in self._brokers}
        died = [name for name, each in self._cluster.services.items() if each.starts > starts.get(name, 1)]
        differing = self._differing(topics)
        for name in died:
            console.print(f"[red]{name} ended by itself[/]; see {self.directory}/logs/{name}.log")
        for place in differing:
            console.print(f"[red]{place} differs between the brokers[/]")
        if not differing:
            console.print("Every partition of these topics is the same on three brokers, byte for byte.")
        return not died and not differing

    def _differing(self, topics: list[str]) -> list[str]:
        """Return the partitions whose replicas differ between the brokers, which are stopped."""
        volumes = [self._volume(name) for name in self._brokers]
        places = sorted({path.name for at in volumes for topic in topics for path in at.glob(f"{topic}-[0-9]*")})
        return [place for place in places if len({log_bytes(at / place) for at in volumes}) > 1]


def log_bytes(directory: Path) -> bytes:
    """Return the bytes of a partition's log, segment after segment."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def project_of(file: Path) -> compose.Project:
    """Load the compose file for clients of this machine: brokers advertise their own addresses and publish no port."""
    project = compose.load(file, {})
    for name, service in project.services.items():
        service.ports = []
        if name.startswith("broker-"):
            service.command = [
                f"--advertised-host={name}" if word.startswith("--advertised-host=") else word
                for word in compose.words(service.command)
            ]
    return project


def port(project: compose.Project, name: str) -> int:
    """Return the port on which a broker listens for clients."""
    words = compose.words(project.services[name].command)
    return next(int(word.partition("=")[2]) for word in words if word.startswith("--port="))
