"""EDGE: the process of `python -m cluster up`, which runs the project until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec
from rich.console import Console

from cluster import choice, user_namespaces
from cluster.cluster import Cluster
from cluster.compose import ComposeError, Project, order
from cluster.control import Desk
from cluster.doors import Door, Doors, listening
from cluster.loopback import Loopback
from cluster.namespaces import Namespaces
from cluster.places import NotAvailableError, Place
from cluster.screen import Tail
from cluster.service import ServiceError, cancelled
from cluster.state import RunningError, StateFolder

READY = "ready"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` was asked for."""

    project: Project
    state: Path
    on: str
    names: list[str]
    profiles: list[str]
    arguments: list[str]
    """The command line, for the same again inside a user namespace."""
    report: TextIO | None = None
    """Who started this process in the background reads here how far it is."""


def run(wish: Wish, console: Console) -> int:
    """Runs the project until SIGINT, SIGTERM or `down`. An exit status."""

    def say(text: str) -> None:
        console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
        if wish.report is not None and not wish.report.closed:
            print(text, file=wish.report, flush=True)

    try:
        place, doors = place_and_doors(wish)
        return asyncio.run(Supervisor(wish, place, doors, say, console).run())
    except (ComposeError, NotAvailableError, RunningError, ServiceError, TimeoutError, OSError) as error:
        say(f"not up: {error}")
        return 1


def place_and_doors(wish: Wish) -> tuple[Place, list[Door]]:
    """Where the services will run, and the published ports; enters a user namespace for that, and does not return."""
    project, everything = wish.project, list(wish.project.services)
    handed = user_namespaces.taken_over()
    if handed is not None:
        place = Namespaces(project, wish.state)
        place.kind = "user-namespaces"
        # Services in the network of the host are in this one, and find the same ports here.
        return place, handed + listening(project, everything)
    folder = StateFolder(wish.state)
    folder.take()  # who has it is told before a taken port is
    folder.release()
    kind = choice.best() if wish.on == "auto" else wish.on
    doors = listening(project, everything)
    if kind == "user-namespaces":
        user_namespaces.enter(wish.arguments, doors)
    return (Namespaces(project, wish.state) if kind == "namespaces" else Loopback(project)), doors


class Supervisor:
    def __init__(
        self, wish: Wish, place: Place, doors: list[Door], say: Callable[[str], None], console: Console
    ) -> None:
        self._wish, self._say, self._console = wish, say, console
        self._cluster = Cluster(wish.project, wish.state, place, doors=Doors(doors), say=say)
        self._leaving = asyncio.Event()

    async def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._asked_to_leave)
        desk = Desk(self._cluster, self._leaving.set)
        await self._cluster.open()
        tail = asyncio.create_task(self._tail().follow()) if self._wish.report is None else None
        try:
            await desk.open()
            self._tell_what_docker_does()
            starting = asyncio.create_task(self._start())
            leaving = asyncio.create_task(self._leaving.wait())
            await asyncio.wait([starting, leaving], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await leaving
            else:
                await cancelled(starting)
        finally:
            if tail is not None:
                await cancelled(tail)
            await desk.close()
            await self._cluster.close()
        return 0

    async def _start(self) -> None:
        wish = self._wish
        names = order(wish.project, wish.names or wish.project.enabled(wish.profiles))
        self._say(f"starting {', '.join(names)} on {self._cluster.place.kind}; state in {self._cluster.state.path}")
        await self._cluster.up(names)
        self._say(READY)
        if wish.report is not None:
            wish.report.close()

    def _tell_what_docker_does(self) -> None:
        keys: dict[str, None] = {}
        for service in self._wish.project.services.values():
            keys |= dict.fromkeys(service.container_only)
        if keys:
            self._say(f"only with containers, not here: {', '.join(keys)}")

    def _tail(self) -> Tail:
        logs = [self._cluster.state.log(name) for name in self._wish.project.services]
        return Tail(logs, self._console, from_start=False)

    def _asked_to_leave(self) -> None:
        if self._leaving.is_set():
            self._say("asked twice: SIGKILL to all")
            for service in self._cluster.services.values():
                if service.pid is not None:
                    os.killpg(service.pid, signal.SIGKILL)
        self._leaving.set()
