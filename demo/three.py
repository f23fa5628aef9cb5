"""EDGE: an etcd and three brokers, as docker-compose.yml says, for one demo: processes on addresses of their own.

Struck is who holds an office at that moment: leads a partition, coordinates, is the controller. Half of those who are
struck come back at once, half only when others have taken over.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from rich.console import Console
from semel import Admin

from cluster import compose
from cluster.cluster import Cluster
from cluster.loopback import Loopback
from cluster.places import NotAvailableError
from demo.brokers import Tell, Watched
from demo.duties import Register, Strike
from demo.report import show_strikes

COMPOSE_FILE = Path(__file__).parents[1] / "docker-compose.yml"
TAKE_OVER_S = 60.0
IN_SYNC_S = 120.0
DOWN_S = 0.3
OFFICES = ("leader", "coordinator", "leader", "coordinator", "controller")


class ThreeBrokers:
    replicas = 3

    def __init__(self, directory: Path, watched: Watched) -> None:
        self.directory = directory
        self.strikes: list[Strike] = []
        project = project_of(COMPOSE_FILE)
        self._brokers = [name for name in project.services if name.startswith("broker-")]
        self._cluster = Cluster(project, directory, Loopback(project))
        self._watched = watched
        self._offices: list[str] = []
        self._recovery: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._admin: Admin | None = None

    @property
    def data_dir(self) -> Path:
        return self.directory / "volumes" / self._brokers[0]

    @property
    def address(self) -> str:
        return ",".join(f"{self._cluster.address(name)}:{port(self._cluster.project, name)}" for name in self._brokers)

    @property
    def kills(self) -> int:
        return len(self.strikes)

    async def start(self) -> str:
        try:
            await self._cluster.open()
            await self._cluster.up()
        except (compose.ComposeError, NotAvailableError) as error:
            raise SystemExit(str(error)) from error
        self._admin = Admin(bootstrap_servers=self.address)
        await self._admin.start()
        self._register = Register(self._admin, self._watched)
        return f"three brokers on {self.address}, etcd beside them, data in {self.directory}/volumes"

    async def strike(self, rng: random.Random, tell: Tell, say: Tell) -> None:
        async with self._changing:
            await self.settled()
            self._offices = self._offices or rng.sample(OFFICES, len(OFFICES))
            office, is_back_at_once = self._offices.pop(), rng.random() < 0.5
            node_id = await self._register.chosen(office, rng)
            strike = Strike(broker=f"broker-{node_id}", office=office, duties=await self._register.duties(node_id))
            await self._cluster.kill(strike.broker)
            since = time.monotonic()
            self.strikes.append(strike)
            tell(f"{strike.broker} ({strike.duties})")
            self._recovery = asyncio.create_task(self._recover(strike, since, say, is_back_at_once))

    async def _recover(self, strike: Strike, since: float, say: Tell, is_back_at_once: bool) -> None:
        if is_back_at_once:
            await asyncio.sleep(DOWN_S)  # how long it stays down
            await self._cluster.start(strike.broker)
        strike.led_again_s = await self._register.led_again(strike.duties, since, TAKE_OVER_S)
        if not is_back_at_once:
            await self._cluster.start(strike.broker)
        await self._register.in_sync(IN_SYNC_S)
        strike.back_s = time.monotonic() - since
        how = "at once" if is_back_at_once else "once others led"
        say(
            f"            {strike.broker} came back {how}; led again after {strike.led_again_s:.1f} s, "
            f"three in sync after {strike.back_s:.1f} s"
        )

    async def settled(self) -> None:
        if self._recovery is not None:
            await self._recovery

    async def stop(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        if self._admin is not None:
            await self._admin.close()
        await self._cluster.close()

    # Afterwards

    def is_sound(self, console: Console, topics: list[str]) -> bool:
        show_strikes(console, self.strikes)
        starts = {name: 1 + sum(each.broker == name for each in self.strikes) for name in self._brokers}
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
        """Partitions whose replicas are not the same bytes on all brokers, which are down."""
        volumes = [self.directory / "volumes" / name for name in self._brokers]
        places = sorted({path.name for at in volumes for topic in topics for path in at.glob(f"{topic}-[0-9]*")})
        return [place for place in places if len({log_bytes(at / place) for at in volumes}) > 1]


def log_bytes(directory: Path) -> bytes:
    """All that a partition's log holds, segment after segment."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def project_of(file: Path) -> compose.Project:
    """The compose file, but clients of this machine use the brokers' own addresses: no port of it is taken."""
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
    """Where a broker listens for clients."""
    words = compose.words(project.services[name].command)
    return next(int(word.partition("=")[2]) for word in words if word.startswith("--port="))
