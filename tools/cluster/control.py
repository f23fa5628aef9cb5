"""EDGE: the control socket of a running project: serves the requests of `python -m tools.cluster`, lines of JSON."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tools.cluster.cluster import RunningProject, status_words
from tools.cluster.compose import ComposeError, Port, ports
from tools.cluster.places import NotAvailableError
from tools.cluster.service import ServiceError, cancelled

LINE_BYTES_MAX = 1 << 20


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One service as `ps` shows it."""

    service: str
    state: str
    health: str
    address: str
    published: list[str]
    pid: int | None
    starts: int


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `do`: a key of ACTIONS. `words`: the services, or a service with its command. `flag`: one way."""

    do: str
    words: list[str] = []
    flag: bool = False


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `error`: empty on success. `status`: the exit status of a service that was run."""

    error: str = ""
    status: int = 0
    rows: list[ServiceRow] = []
    cuts: list[tuple[str, str]] = []
    place: str = ""


class ControlServer:
    """Answers requests about one cluster. `stop`: called for the request `down`."""

    def __init__(self, cluster: RunningProject, stop: Callable[[], None]) -> None:
        self.cluster = cluster
        self.stop = stop
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
                answer = await self._answer_until_disconnect(msgspec.json.decode(line, type=ControlRequest), reader)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # the client has disconnected: it needs no answer
        finally:
            writer.close()

    async def _answer_until_disconnect(self, request: ControlRequest, reader: asyncio.StreamReader) -> ControlAnswer:
        """Answer a request, and finish it also if the client disconnects. Only a `run` is stopped then, with its
        service.
        """
        answering = asyncio.create_task(self.answer(request))
        gone = asyncio.create_task(reader.read())
        try:
            await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and request.do == "run":
                await cancelled(answering)
                raise ConnectionResetError("the client that ran the service has disconnected")
            return await answering
        finally:
            gone.cancel()

    async def answer(self, request: ControlRequest) -> ControlAnswer:
        """Execute a request. A failure is an answer with an error."""
        action = ACTIONS.get(request.do)
        if action is None:
            return ControlAnswer(error=f"there is no request {request.do!r}; the requests are {', '.join(ACTIONS)}")
        try:
            return await action(self, request) or ControlAnswer()
        except (ServiceError, NotAvailableError, ComposeError, TimeoutError, OSError) as error:
            return ControlAnswer(error=str(error))


async def _ps(server: ControlServer, request: ControlRequest) -> ControlAnswer:
    cluster = server.cluster
    rows = []
    for name, service in cluster.project.services.items():
        running = cluster.services.get(name)
        if running is None:
            continue
        ended = f" ({status_words(running.exit_status)})" if running.over else ""
        rows.append(
            ServiceRow(
                service=name,
                state=f"{running.state}{ended}",
                health=running.health.value,
                address=cluster.address(name),
                published=[published(each) for each in ports(service)],
                pid=running.pid,
                starts=running.starts,
            )
        )
    return ControlAnswer(rows=rows, cuts=list(cluster.cuts), place=cluster.place.kind)


def published(port: Port) -> str:
    """A published port as text: its address on this machine, with the service's port if the numbers differ."""
    leads_to = "" if port.published == port.target else f"->{port.target}"
    return f"{port.host}:{port.published}{leads_to}"


async def _start(server: ControlServer, request: ControlRequest) -> None:
    for name in request.words:
        await server.cluster.start(name)
        await server.cluster.healthy(name)


async def _run(server: ControlServer, request: ControlRequest) -> ControlAnswer:
    """Run a one-shot service until it ends, after its dependencies are ready. Further words replace its command."""
    cluster = server.cluster
    name, *command = request.words
    if name in cluster.services and not cluster.services[name].down:
        raise ServiceError(
            f"{name} runs already: wait for its end, or stop it with `python -m tools.cluster stop {name}`"
        )
    if name not in cluster.project.services:
        raise ServiceError(f"there is no service {name!r}; the services are {', '.join(cluster.project.services)}")
    needed = list(cluster.project.services[name].dependencies)
    if needed:
        await cluster.up(needed)
    cluster.add(name, command or None)
    await cluster.start(name)
    try:
        return ControlAnswer(status=await cluster.ended(name))
    except asyncio.CancelledError:
        await cluster.stop(name)
        raise


async def _partition(server: ControlServer, request: ControlRequest) -> None:
    if len(request.words) == 1:
        await server.cluster.isolate(request.words[0])
    else:
        await server.cluster.partition(*request.words[:2], one_way=request.flag)


async def _heal(server: ControlServer, request: ControlRequest) -> None:
    await server.cluster.heal(*request.words[:2])


async def _down(server: ControlServer, request: ControlRequest) -> None:
    server.stop()


def _each(
    method: Callable[[RunningProject, str], Awaitable[None]],
) -> Callable[[ControlServer, ControlRequest], Awaitable[None]]:
    async def act(server: ControlServer, request: ControlRequest) -> None:
        for name in request.words:
            await method(server.cluster, name)

    return act


ACTIONS: dict[str, Callable[[ControlServer, ControlRequest], Awaitable[ControlAnswer | None]]] = {
    "ps": _ps,
    "start": _start,
    "stop": _each(RunningProject.stop),
    "restart": _each(RunningProject.restart),
    "kill": _each(RunningProject.kill),
    "pause": _each(RunningProject.pause),
    "unpause": _each(RunningProject.unpause),
    "run": _run,
    "partition": _partition,
    "heal": _heal,
    "down": _down,
}


async def ask(path: Path, request: ControlRequest) -> ControlAnswer:
    """Send one request to the process that runs the project. Raises OSError if none runs, or if it ends meanwhile."""
    with short(path) as reachable:
        reader, writer = await asyncio.open_unix_connection(reachable, limit=LINE_BYTES_MAX)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError(
            "the process that runs the project ended before it answered: start it again: `python -m tools.cluster up`"
        )
    return msgspec.json.decode(line, type=ControlAnswer)


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A path of the socket that is short enough for the kernel (108 bytes), also for a long path of the folder."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
