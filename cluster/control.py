"""EDGE: the control socket of a running project: requests of `python -m cluster` as lines of JSON."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cluster.cluster import Cluster, status_words
from cluster.compose import ComposeError, Port, ports
from cluster.places import NotAvailableError
from cluster.service import ServiceError, cancelled

LINE_BYTES_MAX = 1 << 20


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One service as `ps` shows it."""

    service: str
    state: str
    health: str
    address: str
    published: list[str]
    pid: int | None
    starts: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, a key of ACTIONS, with which service or services."""

    do: str
    words: list[str] = []
    flag: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How it went: `error` empty when it went well, `status` an exit status where a service was run."""

    error: str = ""
    status: int = 0
    rows: list[Row] = []
    cuts: list[tuple[str, str]] = []
    place: str = ""


class Desk:
    """Answers requests about one cluster. `leave` is called when somebody asked for its end."""

    def __init__(self, cluster: Cluster, leave: Callable[[], None]) -> None:
        self.cluster = cluster
        self.leave = leave
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        path = self.cluster.state.control
        path.unlink(missing_ok=True)
        with short(path) as reachable:
            self._server = await asyncio.start_unix_server(self._serve, reachable, limit=LINE_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cluster.state.control.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line:
                answer = await self._answer_while_there(msgspec.json.decode(line, type=Request), reader)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # who asked does not want to know any more
        finally:
            writer.close()

    async def _answer_while_there(self, request: Request, reader: asyncio.StreamReader) -> Answer:
        """What is asked is done, whether who asked stays or not; a service that was to be run ends with who ran it."""
        answering = asyncio.create_task(self.answer(request))
        gone = asyncio.create_task(reader.read())
        try:
            await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and request.do == "run":
                await cancelled(answering)
                raise ConnectionResetError("who ran a service went away")
            return await answering
        finally:
            gone.cancel()

    async def answer(self, request: Request) -> Answer:
        """Does what is asked. What cannot be done is an answer with an error."""
        action = ACTIONS.get(request.do)
        if action is None:
            return Answer(error=f"{request.do!r} is none of {', '.join(ACTIONS)}")
        try:
            return await action(self, request) or Answer()
        except (ServiceError, NotAvailableError, ComposeError, TimeoutError, OSError) as error:
            return Answer(error=str(error))


async def _ps(desk: Desk, request: Request) -> Answer:
    cluster = desk.cluster
    rows = []
    for name, service in cluster.project.services.items():
        running = cluster.services.get(name)
        if running is None:
            continue
        ended = f" ({status_words(running.exit_status)})" if running.over else ""
        rows.append(
            Row(
                service=name,
                state=f"{running.state}{ended}",
                health=running.health.value,
                address=cluster.address(name),
                published=[published(each) for each in ports(service)],
                pid=running.pid,
                starts=running.starts,
            )
        )
    return Answer(rows=rows, cuts=list(cluster.cuts), place=cluster.place.kind)


def published(port: Port) -> str:
    """Where it is reached, and what it leads to if that is another number."""
    leads_to = "" if port.published == port.target else f"->{port.target}"
    return f"{port.host}:{port.published}{leads_to}"


async def _start(desk: Desk, request: Request) -> None:
    for name in request.words:
        await desk.cluster.start(name)
        await desk.cluster.healthy(name)


async def _run(desk: Desk, request: Request) -> Answer:
    """A service of its own kind: with what it depends on, to its end; further words replace its command."""
    cluster = desk.cluster
    name, *command = request.words
    if name in cluster.services and not cluster.services[name].down:
        raise ServiceError(f"{name} runs already")
    if name not in cluster.project.services:
        raise ServiceError(f"there is no service {name!r}; there are {', '.join(cluster.project.services)}")
    needed = list(cluster.project.services[name].dependencies)
    if needed:
        await cluster.up(needed)
    cluster.add(name, command or None)
    await cluster.start(name)
    try:
        return Answer(status=await cluster.ended(name))
    except asyncio.CancelledError:
        await cluster.stop(name)
        raise


async def _partition(desk: Desk, request: Request) -> None:
    if len(request.words) == 1:
        await desk.cluster.isolate(request.words[0])
    else:
        await desk.cluster.partition(*request.words[:2], one_way=request.flag)


async def _heal(desk: Desk, request: Request) -> None:
    await desk.cluster.heal(*request.words[:2])


async def _down(desk: Desk, request: Request) -> None:
    desk.leave()


def _each(method: Callable[[Cluster, str], Awaitable[None]]) -> Callable[[Desk, Request], Awaitable[None]]:
    async def act(desk: Desk, request: Request) -> None:
        for name in request.words:
            await method(desk.cluster, name)

    return act


ACTIONS: dict[str, Callable[[Desk, Request], Awaitable[Answer | None]]] = {
    "ps": _ps,
    "start": _start,
    "stop": _each(Cluster.stop),
    "restart": _each(Cluster.restart),
    "kill": _each(Cluster.kill),
    "pause": _each(Cluster.pause),
    "unpause": _each(Cluster.unpause),
    "run": _run,
    "partition": _partition,
    "heal": _heal,
    "down": _down,
}


async def ask(path: Path, request: Request) -> Answer:
    """Sends one request to whoever runs the project. Raises OSError when nobody does, or it went away meanwhile."""
    with short(path) as reachable:
        reader, writer = await asyncio.open_unix_connection(reachable, limit=LINE_BYTES_MAX)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError("the process that runs the project went away")
    return msgspec.json.decode(line, type=Answer)


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A name of a socket that is not too long for the kernel (108 bytes), however deep the folder lies."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
