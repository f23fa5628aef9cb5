"""EDGE: a running project: starts its services in order, stops them in reverse, cuts and heals their network.

async with Cluster(project, Path("state"), places.Loopback(project)) as cluster:
    await cluster.kill("broker-2")
    await cluster.start("broker-2")
    await cluster.healthy("broker-2")
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import programs
from cluster.compose import Condition, Project, order
from cluster.doors import Doors, listening
from cluster.places import HOST, Place
from cluster.service import Health, Running, ServiceError
from cluster.specs import spec
from cluster.state import StateFolder

READY_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 2_000


def silent(_: str) -> None:
    """Tells nobody."""


class Cluster:
    """A project that runs. `services` by name; only those that were started once are in it.

    `doors`: listening sockets of published ports, where the caller opened them already (see `doors.listening`).
    """

    def __init__(
        self,
        project: Project,
        state: Path,
        place: Place,
        *,
        doors: Doors | None = None,
        say: Callable[[str], None] = silent,
    ) -> None:
        self.project = project
        self.state = StateFolder(state)
        self.place = place
        self.services: dict[str, Running] = {}
        self.cuts: dict[tuple[str, str], None] = {}
        """Pairs (sender, receiver) that are cut, in the order of the cuts."""
        self._doors = doors
        self._say = say
        self._healing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.open()
        try:
            await self.up()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        await self.close()

    # The whole

    async def open(self) -> None:
        """Takes the state folder, sets up the network and opens the published ports; nothing runs yet.

        Raises RunningError, NotAvailableError, ComposeError.
        """
        self.state.take()
        try:
            await self.place.open()
            if self._doors is None:
                self._doors = Doors(listening(self.project, list(self.project.services)))
            await self._doors.open(self.place.addresses)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stops what runs, those first on which nothing depends, and takes everything down."""
        try:
            await self.down()
        finally:
            if self._doors is not None:
                await self._doors.close()
            await self.place.close()
            self.state.release()

    async def up(self, names: Iterable[str] | None = None, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts services (None: those without a profile) and what they depend on, each when its time has come.

        Returns when each is healthy, or runs, or has ended well. Raises ServiceError, TimeoutError.
        """
        wanted = order(self.project, list(self.project.enabled() if names is None else names))
        for name in wanted:
            if name not in self.services:
                self.add(name)
        try:
            async with asyncio.timeout(timeout_s):
                await together(self._begin(name) for name in wanted)
                await together(self.ready(name) for name in wanted)
        except TimeoutError:
            late = [f"{name} is {self.describe(name)}" for name in wanted if not self._is_ready(name)]
            raise TimeoutError(f"not ready after {timeout_s:g} s: {'; '.join(late)}") from None

    async def down(self) -> None:
        """Stop every service, each one before those that it depends on."""
        stops: dict[str, asyncio.Task[None]] = {}

        async def stop(name: str) -> None:
            for other in self.services:
                if name in self.project.services[other].dependencies:
                    await stops[other]
            if not self.services[name].down:
                await self.services[name].stop()
                self._say(f"{name} {self.describe(name)}")

        for name in self.services:
            stops[name] = asyncio.create_task(stop(name))
        await asyncio.gather(*stops.values())

    # One service

    async def start(self, name: str) -> None:
        """Starts one service, without what it depends on; returns when its process runs. See `ready`."""
        self._known(name)
        if name not in self.services:
            self.add(name)
        await self.services[name].start()
        self._say(f"{name} started, process {self.services[name].pid}")

    async def stop(self, name: str) -> None:
        """Send its stop signal, SIGKILL after its grace period, and wait for its end."""
        await self.running(name).stop()
        self._say(f"{name} {self.describe(name)}")

    async def restart(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send SIGKILL (or another signal) and wait for its end. The service stays down until `start`."""
        await self.running(name).kill(number)
        self._say(f"{name} got {number.name}")

    async def pause(self, name: str) -> None:
        """Send SIGSTOP and wait until all its processes are stopped."""
        await self.running(name).pause()
        self._say(f"{name} stands still")

    async def unpause(self, name: str) -> None:
        await self.running(name).unpause()
        self._say(f"{name} goes on")

    def add(self, name: str, command: list[str] | None = None) -> Running:
        """The service made ready for its first start, with another command than its own if one is given."""
        found = programs.program(name, self.project, command)
        for each in found.told:
            self._say(each)
        self.services[name] = Running(name, spec(name, found, self.project, self.place, self.state))
        return self.services[name]

    def running(self, name: str) -> Running:
        """The service, which was started once. Raises ServiceError."""
        self._known(name)
        if name not in self.services:
            raise ServiceError(f"{name} was not started yet: start it first")
        return self.services[name]

    def address(self, name: str) -> str:
        """The IP address of a service; from this machine it is reached there too, unless the place is another's."""
        self._known(name)
        return self.place.addresses[name]

    async def healthy(self, name: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits until a service is healthy, or runs if it has no check. Raises ServiceError, TimeoutError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.ready(name)
        except TimeoutError:
            raise TimeoutError(f"{name} is {self.describe(name)} after {timeout_s:g} s") from None

    async def ended(self, name: str) -> int:
        """Waits until a service has ended for good; its exit status."""
        service = self.running(name)
        await service.until(lambda: service.over)
        assert service.exit_status is not None
        return service.exit_status

    # The network

    async def partition(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Drop everything between two services; one way: everything from the first to the second.

        One of them may be "host": the published ports and whoever connects from this machine. Raises NotAvailableError.
        """
        for source, target in [(one, other)] if one_way else [(one, other), (other, one)]:
            for name in (source, target):
                self._known(name, or_host=True)
            await self.place.cut(source, target)
            self.cuts[source, target] = None
        self._say(f"{one} {'->' if one_way else '<->'} {other} cut")

    async def isolate(self, name: str) -> None:
        """Cuts a service off from all others, and from the host."""
        for other in [*self.project.services, HOST]:
            if other == HOST or (other != name and self.project.services[other].network_mode != HOST):
                await self.partition(name, other)

    async def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Ends all partitions, or those of one service, or the one between two."""
        wanted = {each for each in (one, other) if each is not None}
        async with self._healing:  # two at a time would heal the same cut
            for source, target in list(self.cuts):
                if wanted <= {source, target}:
                    await self.place.heal(source, target)
                    del self.cuts[source, target]
                    self._say(f"{source} -> {target} healed")

    # Inside

    def _known(self, name: str, *, or_host: bool = False) -> None:
        if name not in self.project.services and not (or_host and name == HOST):
            raise ServiceError(f"there is no service {name!r}; there are {', '.join(self.project.services)}")
        if or_host and name != HOST and self.project.services[name].network_mode == HOST:
            raise ServiceError(f"{name} is in the network of the host; name host instead")

    async def _begin(self, name: str) -> None:
        for other, dependency in self.project.services[name].dependencies.items():
            await self._meets(other, dependency.condition, name)
        if self.services[name].down:
            await self.start(name)

    async def _meets(self, name: str, condition: Condition, for_whom: str) -> None:
        service = self.services[name]
        if condition == "service_started":
            await service.until(lambda: service.starts > 0)
        elif condition == "service_completed_successfully":
            await service.until(lambda: service.over)
            if service.exit_status:
                raise ServiceError(
                    f"{for_whom} waits for {name}, which is {self.describe(name)}{self._last_words(name)}"
                )
        else:
            await self.ready(name)

    def _is_ready(self, name: str) -> bool:
        service = self.services.get(name)
        if service is None:
            return False
        return service.health is Health.HEALTHY if service.spec.check and not service.over else service.starts > 0

    async def ready(self, name: str) -> None:
        """Waits, for as long as it takes, until a service is healthy, or runs if it has no check, or has ended well."""
        service = self.running(name)
        done = (Health.HEALTHY, Health.UNHEALTHY)
        await service.until(lambda: service.over or service.health in done or (service.up and not service.spec.check))
        if service.health is Health.UNHEALTHY or (service.over and service.exit_status):
            raise ServiceError(f"{name} is {self.describe(name)}{self._last_words(name)}")

    def describe(self, name: str) -> str:
        """State, health and exit status of a service in a few words."""
        service = self.services.get(name)
        if service is None:
            return "not started"
        if service.over:
            return f"ended ({status_words(service.exit_status)})"
        check = f": {service.last_check}" if service.last_check else ""
        return f"{service.state}{f', {service.health}' if service.health else ''}{check}"

    def _last_words(self, name: str) -> str:
        try:
            text = self.state.log(name).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
        return f". Its last words ({self.state.log(name)}):\n{text}" if text else ", and it said nothing"


def status_words(status: int | None) -> str:
    """0, 1, ... or the name of the signal."""
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return str(status)


async def together(waits: Iterable[object]) -> None:
    """Awaits all; the first error ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(each) for each in waits]  # type: ignore[call-overload]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
