"""EDGE: the process of `python -m tools.cluster up`: runs the project until a signal or `down` stops it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec
from rich.console import Console

from tools.cluster import choice, secrets, user_namespaces
from tools.cluster.cluster import RunningProject
from tools.cluster.compose import ComposeError, Project, Service, mounts, order, ports, words
from tools.cluster.control import ControlServer
from tools.cluster.loopback import Loopback
from tools.cluster.namespaces import Namespaces
from tools.cluster.places import NotAvailableError, ServiceNetwork
from tools.cluster.programs import OWN
from tools.cluster.published_ports import PublishedPort, PublishedPorts, open_ports
from tools.cluster.screen import LogScreen, Tail
from tools.cluster.service import ServiceError, cancelled
from tools.cluster.state import RunningError, StateFolder

READY = "ready"
LAST_LINES_S = 2.0
"""At its end the process waits for its terminal at most so long."""


class UpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `up`. `on`: the kind of network."""

    project: Project
    state: Path
    on: str
    names: list[str]
    profiles: list[str]
    arguments: list[str]
    """The command line, to run it again inside a user namespace."""
    report: TextIO | None = None
    """The pipe to the process that has started this one in the background; it gets the messages."""


def run(request: UpRequest, console: Console) -> int:
    """Run the project until SIGINT, SIGTERM, SIGHUP or `down`. Returns the exit status."""

    screen = LogScreen(console)

    def say(text: str) -> None:
        screen.say(text)
        if request.report is not None and not request.report.closed:
            print(text, file=request.report, flush=True)

    try:
        place, published = place_and_ports(request)
        status = asyncio.run(Supervisor(request, place, published, say, screen, console).run())
    except (ComposeError, NotAvailableError, RunningError, ServiceError, TimeoutError, OSError) as error:
        say(f"not up: {error}")
        status = 1
    if not screen.close(LAST_LINES_S):
        os._exit(status)  # Python would wait for the thread, which hangs in its buffer
    return status


def place_and_ports(request: UpRequest) -> tuple[ServiceNetwork, list[PublishedPort]]:
    """The network for the services, and the published ports. To use a user namespace, the process enters it and starts
    again there; then this function does not return.
    """
    project, everything = request.project, list(request.project.services)
    handed = user_namespaces.inherited_ports()
    if handed is not None:
        place = Namespaces(project, request.state)
        place.kind = "user-namespaces"
        # Services in the network of the host are in this namespace, where they need the same ports.
        return place, handed + open_ports(project, everything)
    folder = StateFolder(request.state)
    folder.take()  # a running project is reported as such, before its ports are reported as taken
    folder.release()
    kind = choice.best() if request.on == "auto" else request.on
    published = open_ports(project, everything)
    if kind == "user-namespaces":
        user_namespaces.enter(request.arguments, published)
    return (Namespaces(project, request.state) if kind == "namespaces" else Loopback(project)), published


class Supervisor:
    def __init__(
        self,
        request: UpRequest,
        place: ServiceNetwork,
        published: list[PublishedPort],
        say: Callable[[str], None],
        screen: LogScreen,
        console: Console,
    ) -> None:
        self._request, self._say, self._screen, self._console = request, say, screen, console
        self._cluster = RunningProject(
            request.project, request.state, place, published=PublishedPorts(published), say=say
        )
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._stop_requested)
        server = ControlServer(self._cluster, self._stopping.set)
        await self._cluster.open()
        if self._request.report is None:
            self._screen.follow(self._tail())
        try:
            await server.open()
            self._say_ignored_keys()
            starting = asyncio.create_task(self._start())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
            else:
                await cancelled(starting)
        finally:
            await server.close()
            await self._cluster.close()
        return 0

    async def _start(self) -> None:
        request = self._request
        names = order(request.project, request.names or request.project.enabled(request.profiles))
        self._say(f"starting {', '.join(names)} on {self._cluster.place.kind}; state in {self._cluster.state.path}")
        await self._cluster.up(names)
        self._say_what_to_do_next(names)
        self._say(READY)
        if request.report is not None:
            request.report.close()

    def _say_what_to_do_next(self, names: list[str]) -> None:
        """The addresses for clients, and the commands to look at the services and to stop them."""
        services = self._request.project.services
        brokers = [
            name for name in names if OWN.fullmatch(services[name].image) and "serve" in words(services[name].command)
        ]
        addresses = ",".join(f"{port.host}:{port.published}" for name in brokers for port in ports(services[name]))
        settings = next((file for name in brokers if (file := self._client_settings(services[name]))), None)
        if settings is not None:
            self._say(f"clients connect to {addresses} with SCRAM and TLS")
            self._say(f"{settings} has the settings of the user {secrets.USER}, with its password and the CA; try:")
            for command in secrets.FIRST_COMMANDS:
                self._say(f"  semel {command} --config-file {settings}")
        elif addresses:
            self._say(f"clients connect to {addresses}; try: semel cluster -b {addresses.partition(',')[0]}")
        self._say("look: python -m tools.cluster ps (or: logs); stop: Ctrl-C or python -m tools.cluster down")

    def _client_settings(self, service: Service) -> str | None:
        """The file of `python -m tools.cluster secrets`, if the service uses that folder."""
        folders = [self._cluster.state.volume(mount, Path(self._request.project.folder)) for mount in mounts(service)]
        found = [folder / secrets.ADMIN for folder in folders if (folder / secrets.ADMIN).is_file()]
        return os.path.relpath(found[0]) if found else None

    def _say_ignored_keys(self) -> None:
        keys: dict[str, None] = {}
        for service in self._request.project.services.values():
            keys |= dict.fromkeys(service.container_only)
        if keys:
            self._say(f"only with containers, not here: {', '.join(keys)}")

    def _tail(self) -> Tail:
        logs = [self._cluster.state.log(name) for name in self._request.project.services]
        return Tail(logs, self._console, from_start=False)

    def _stop_requested(self) -> None:
        if self._stopping.is_set():
            self._say("stopped a second time: sending SIGKILL to all services")
            for service in self._cluster.services.values():
                if service.pid is not None:
                    os.killpg(service.pid, signal.SIGKILL)
        self._stopping.set()
