"""EDGE: a running project: starts its services in order, stops them in reverse order, cuts and heals their network.

async with RunningProject(project, Path("state"), places.Loopback(project)) as cluster:
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

from tools.cluster import programs
from tools.cluster.compose import Condition, Project, order
from tools.cluster.places import HOST, ServiceNetwork
from tools.cluster.published_ports import PublishedPorts, open_ports
from tools.cluster.service import ServiceError, ServiceHealth, ServiceRun
from tools.cluster.specs import spec
from tools.cluster.state import StateFolder

READY_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 2_000


def silent(_: str) -> None:
    """Ignore the message."""


class RunningProject:
    """A running project. `services`: by name; only services that were started at least once.

    `published`: the published ports, if the caller has opened them already (`open_ports`). `say`: gets each message.
    """

    def __init__(
        self,
        project: Project,
        state: Path,
        place: ServiceNetwork,
        *,
        published: PublishedPorts | None = None,
        say: Callable[[str], None] = silent,
    ) -> None:
        self.project = project
        self.state = StateFolder(state)
        self.place = place
        self.services: dict[str, ServiceRun] = {}
        self.cuts: dict[tuple[str, str], None] = {}
        """The cut pairs (sender, receiver), in the order of the cuts."""
        self._published = published
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

    # --- all services ---

    async def open(self) -> None:
        """Lock the state folder, set up the network and open the published ports. No service is started.

        Raises RunningError, NotAvailableError, ComposeError.
        """
        self.state.take()
        try:
            await self.place.open()
            if self._published is None:
                self._published = PublishedPorts(open_ports(self.project, list(self.project.services)))
            await self._published.open(self.place.addresses)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop all services (see `down`), close the ports, remove the network, and unlock the state folder."""
        try:
            await self.down()
        finally:
            if self._published is not None:
                await self._published.close()
            await self.place.close()
            self.state.release()

    async def up(self, names: Iterable[str] | None = None, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start services (None: those without a profile) with their dependencies, each once its conditions are met.

        Returns when each is ready (see `ready`). Raises ServiceError, TimeoutError.
        """
        wanted = order(self.project, list(self.project.enabled() if names is None else names))
        for name in wanted:
            if name not in self.services:
                self.add(name)
        try:
            async with asyncio.timeout(timeout_s):
                await gather_all(self._begin(name) for name in wanted)
                await gather_all(self.ready(name) for name in wanted)
        except TimeoutError:
            late = [f"{name} is {self.describe(name)}" for name in wanted if not self._is_ready(name)]
            raise TimeoutError(f"not ready after {timeout_s:g} s: {'; '.join(late)}. See {self.state.logs}") from None

    async def down(self) -> None:
        """Stop all services, each one before its dependencies."""
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

    # --- one service ---

    async def start(self, name: str) -> None:
        """Start one service without its dependencies. Returns when its process runs; `ready` waits for more."""
        self._known(name)
        if name not in self.services:
            self.add(name)
        await self.services[name].start()
        self._say(f"{name} started, process {self.services[name].pid}")

    async def stop(self, name: str) -> None:
        """Send the service its stop signal, and SIGKILL after its grace period; wait for its end."""
        await self.running(name).stop()
        self._say(f"{name} {self.describe(name)}")

    async def restart(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal. After SIGKILL wait for the end of the service, which stays stopped until `start`."""
        await self.running(name).kill(number)
        self._say(f"{name} was sent {number.name}")

    async def pause(self, name: str) -> None:
        """Send SIGSTOP to the processes of the service, and wait until the kernel has stopped the first one."""
        await self.running(name).pause()
        self._say(f"{name} is paused")

    async def unpause(self, name: str) -> None:
        await self.running(name).unpause()
        self._say(f"{name} continues")

    def add(self, name: str, command: list[str] | None = None) -> ServiceRun:
        """Prepare a service for its first start. `command`: replaces its own command."""
        found = programs.program(name, self.project, command)
        for each in found.notes:
            self._say(each)
        self.services[name] = ServiceRun(name, spec(name, found, self.project, self.place, self.state))
        return self.services[name]

    def running(self, name: str) -> ServiceRun:
        """The service. Raises ServiceError if it does not exist or was never started."""
        self._known(name)
        if name not in self.services:
            raise ServiceError(f"{name} was not started yet: start it first")
        return self.services[name]

    def address(self, name: str) -> str:
        """The IP address of a service, for other services and for this machine. In a user namespace only the published
        ports are reachable from this machine.
        """
        self._known(name)
        return self.place.addresses[name]

    async def healthy(self, name: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """`ready` with a timeout. Raises ServiceError, TimeoutError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.ready(name)
        except TimeoutError:
            raise TimeoutError(
                f"{name} is {self.describe(name)} after {timeout_s:g} s. See its log, {self.state.log(name)}"
            ) from None

    async def ended(self, name: str) -> int:
        """Wait until a service has ended and is not restarted. Returns its exit status."""
        service = self.running(name)
        await service.until(lambda: service.over)
        assert service.exit_status is not None
        return service.exit_status

    # --- the network ---

    async def partition(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Drop all packets between two services; with `one_way` only the packets from `one` to `other`.

        One of them may be "host": this machine, with its clients and the published ports. Raises NotAvailableError,
        ServiceError.
        """
        for source, target in [(one, other)] if one_way else [(one, other), (other, one)]:
            for name in (source, target):
                self._known(name, or_host=True)
            await self.place.cut(source, target)
            self.cuts[source, target] = None
        self._say(f"{one} {'->' if one_way else '<->'} {other} cut")

    async def isolate(self, name: str) -> None:
        """Drop all packets between a service and all others, and the host."""
        for other in [*self.project.services, HOST]:
            if other == HOST or (other != name and self.project.services[other].network_mode != HOST):
                await self.partition(name, other)

    async def heal(self, one: str | None = None, other: str | None = None) -> None:
        """End all partitions, or those of one service, or the one between two services."""
        wanted = {each for each in (one, other) if each is not None}
        async with self._healing:  # two calls at the same time would heal the same cut
            for source, target in list(self.cuts):
                if wanted <= {source, target}:
                    await self.place.heal(source, target)
                    del self.cuts[source, target]
                    self._say(f"{source} -> {target} healed")

    # --- inside ---

    def _known(self, name: str, *, or_host: bool = False) -> None:
        if name not in self.project.services and not (or_host and name == HOST):
            raise ServiceError(f"there is no service {name!r}; the services are {', '.join(self.project.services)}")
        if or_host and name != HOST and self.project.services[name].network_mode == HOST:
            raise ServiceError(f"{name} has no network of its own, it is in the host's: name `host` instead")

    async def _begin(self, name: str) -> None:
        for other, dependency in self.project.services[name].dependencies.items():
            await self._wait_for(other, dependency.condition, name)
        if self.services[name].down:
            await self.start(name)

    async def _wait_for(self, name: str, condition: Condition, dependent: str) -> None:
        service = self.services[name]
        if condition == "service_started":
            await service.until(lambda: service.starts > 0)
        elif condition == "service_completed_successfully":
            await service.until(lambda: service.over)
            if service.exit_status:
                raise ServiceError(
                    f"{dependent} waits for {name}, which has {self.describe(name)}{self._log_tail(name)}"
                )
        else:
            await self.ready(name)

    def _is_ready(self, name: str) -> bool:
        service = self.services.get(name)
        if service is None:
            return False
        return (
            service.health is ServiceHealth.HEALTHY if service.spec.check and not service.over else service.starts > 0
        )

    async def ready(self, name: str) -> None:
        """Wait, without a timeout, until a service is healthy, or has ended with status 0; without a health check,
        until it runs. Raises ServiceError if it is unhealthy or has ended with another status.
        """
        service = self.running(name)
        done = (ServiceHealth.HEALTHY, ServiceHealth.UNHEALTHY)
        await service.until(lambda: service.over or service.health in done or (service.up and not service.spec.check))
        if service.health is ServiceHealth.UNHEALTHY or (service.over and service.exit_status):
            raise ServiceError(f"{name} is {self.describe(name)}{self._log_tail(name)}")

    def describe(self, name: str) -> str:
        """The state, health and exit status of a service as text."""
        service = self.services.get(name)
        if service is None:
            return "not started"
        if service.over:
            return f"ended ({status_words(service.exit_status)})"
        check = f": {service.last_check}" if service.last_check else ""
        return f"{service.state}{f', {service.health}' if service.health else ''}{check}"

    def _log_tail(self, name: str) -> str:
        try:
            text = self.state.log(name).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
        return f". The end of its log, {self.state.log(name)}:\n{text}" if text else ", and its log is empty"


def status_words(status: int | None) -> str:
    """An exit status as text: 0, 1, ... or the name of the signal."""
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return str(status)


async def gather_all(waits: Iterable[object]) -> None:
    """Await all. The first error cancels the others and is raised."""
    tasks = [asyncio.ensure_future(each) for each in waits]  # type: ignore[call-overload]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
