"""The console as an ASGI application: the page's files, the facts of the cluster as JSON and as events, and writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from semel import Admin, Producer
from semel._edge import Edge
from semel_protocol import __version__
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from semel_console.answers import CLUSTER_ERRORS, NOT_AUTHORIZED, RequestRefusedError, json_answer, problem_answer
from semel_console.facts.search import search
from semel_console.files import page_files
from semel_console.guard import ConsoleGuard, PageHeaders, headers_of
from semel_console.link import CALL_TIMEOUT_S, ClusterLink
from semel_console.pages import FACTS, MEDIA_TYPES, NEEDS, Export, knock
from semel_console.query import QueryParameters
from semel_console.watch import EVERY_S, STREAMS_MAX, events
from semel_console.writes import WRITES

if TYPE_CHECKING:  # it needs the extra `avro`
    from semel_console.decoding import Decoder

Producing = Callable[[], AbstractAsyncContextManager[Producer]]
WITH_RECORDS = ("records", "search")
"""Facts whose records a decoder reads."""
BODY_BYTES_MAX = 64 * 1024
KNOCK_LIMIT_S = 2.0


class LoginBody(msgspec.Struct):
    """The body of a first visit."""

    token: str


class ConsoleApi:
    """The handlers of the API. Arguments as of `console_app`."""

    def __init__(
        self,
        link: ClusterLink,
        guard: ConsoleGuard,
        edge: Edge,
        every_s: float,
        ending: asyncio.Event,
        producing: Producing | None,
        decoder: Decoder | None,
    ) -> None:
        self._link, self._guard, self._edge, self._every_s, self._ending = link, guard, edge, every_s, ending
        self._producing, self._decoder = producing, decoder
        self._streams = 0

    async def login(self, request: Request) -> Response:
        self._guard.check_origin(headers_of(request.headers))
        given = msgspec.json.decode(await _body(request), type=LoginBody)
        return json_answer(self._session(), headers={"set-cookie": self._guard.cookie_for(given.token)})

    async def session(self, request: Request) -> Response:
        """As the answer to a login."""
        self._guard.check_read(headers_of(request.headers), request.cookies)
        return json_answer(self._session())

    def _session(self) -> dict[str, Any]:
        """The facts that the page reads once. Only the page's own origin can read the write token."""
        token = self._guard.write_token if self._guard.may_write else None
        return {"version": __version__, "write_token": token}

    async def facts(self, request: Request) -> Response:
        """The facts of a page; with `watch=1` as a stream of events."""
        self._guard.check_read(headers_of(request.headers), request.cookies)
        name = request.path_params["name"]
        find = FACTS.get(name)
        if find is None:
            raise RequestRefusedError(404, f"There is no page {name!r}")
        if name == "search" and self._decoder is not None:
            find = partial(search, decode=self._decoder.json_of)
        query = QueryParameters(request.query_params)

        async def found() -> object:
            try:
                shown = await self._link.call(lambda admin: find(admin, query, self._edge.now_ms()))
                if name in WITH_RECORDS and self._decoder is not None:
                    await self._decoder.add(shown["topic"], shown["records"])
                return shown
            except NOT_AUTHORIZED as e:
                e.add_note(NEEDS.get(name, ""))
                raise

        if not request.query_params.get("watch"):
            return json_answer(await found())
        if self._streams >= STREAMS_MAX:
            raise RequestRefusedError(503, f"{STREAMS_MAX} pages are open: close some")
        watched = self._with_knocks(found) if name == "overview" else events(found, self._every_s, self._ending)
        return StreamingResponse(self._counted(watched), media_type="text/event-stream")

    def _with_knocks(self, overview: Callable[[], Awaitable[object]]) -> AsyncIterator[bytes]:
        """The events of the overview, and whether the brokers that it named last answer."""
        node_ids: list[int] = []

        async def found() -> object:
            shown: Any = await overview()
            node_ids[:] = [each["id"] for each in shown["health"]["brokers"] if each["address"]]
            return shown

        async def knocked() -> object:
            try:
                return await self._link.call(lambda admin: knock(admin, node_ids), KNOCK_LIMIT_S)
            except CLUSTER_ERRORS:
                return {"silent": dict.fromkeys(map(str, node_ids), "no broker takes a connection")}

        return events(found, self._every_s, self._ending, knocked)

    async def _counted(self, watched: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for event in watched:
                yield event
        finally:
            self._streams -= 1

    async def export(self, request: Request) -> Response:
        """Found records as a file. An error of the first request is an answer; a later one cuts the file."""
        self._guard.check_read(headers_of(request.headers), request.cookies)
        wanted = Export(QueryParameters(request.query_params), self._edge.now_ms())
        pieces = wanted.pieces(self._link.call)
        try:
            first = await anext(pieces)
        except NOT_AUTHORIZED as e:
            e.add_note(NEEDS["export"])
            raise

        async def file() -> AsyncIterator[bytes]:
            yield first
            async for piece in pieces:
                yield piece

        headers = {"content-disposition": f'attachment; filename="{wanted.file_name}"'}
        return StreamingResponse(file(), headers=headers, media_type=MEDIA_TYPES[wanted.form])

    async def write(self, request: Request) -> Response:
        self._guard.check_write(headers_of(request.headers), request.cookies)
        known = WRITES.get(request.path_params["name"])
        if known is None:
            raise RequestRefusedError(404, f"There is no change {request.path_params['name']!r}")
        body = msgspec.json.decode(await _body(request), type=known.body)

        if known.needs_producer:
            return json_answer(await self._with_producer(lambda producer: known.work(producer, body, 0)))

        async def done(admin: Admin) -> object:
            return await known.work(admin, body, self._edge.now_ms())

        return json_answer(await self._link.call(done))

    async def _with_producer(self, work: Callable[[Producer], Awaitable[object]]) -> object:
        if self._producing is None:
            raise RequestRefusedError(501, "This console was started without settings for a producer")
        async with asyncio.timeout(CALL_TIMEOUT_S), self._producing() as producer:
            return await work(producer)


def console_app(
    link: ClusterLink,
    guard: ConsoleGuard,
    *,
    edge: Edge | None = None,
    every_s: float = EVERY_S,
    ending: asyncio.Event | None = None,
    producing: Producing | None = None,
    decoder: Decoder | None = None,
) -> Any:
    """The ASGI application. It closes `link` and `decoder` at its end.

    every_s: the time between two looks at watched facts. ending: once it is set, the streams of events end. producing:
    makes a context with a started Producer, for records that the page writes.
    """
    api = ConsoleApi(link, guard, edge or Edge(), every_s, ending or asyncio.Event(), producing, decoder)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await link.close()
        if decoder is not None:
            await decoder.close()

    routes = [
        Route("/api/login", _guarded(guard, api.login), methods=["POST"]),
        Route("/api/session", _guarded(guard, api.session)),
        Route("/api/facts/{name}", _guarded(guard, api.facts)),
        Route("/api/export", _guarded(guard, api.export)),
        Route("/api/do/{name}", _guarded(guard, api.write), methods=["POST"]),
        *(Route(path, _guarded(guard, file)) for path, file in _file_handlers().items()),
    ]
    return PageHeaders(Starlette(routes=routes, lifespan=lifespan))


def _guarded(
    guard: ConsoleGuard, handler: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """The handler behind the check of the host name, with errors as answers."""

    async def guarded(request: Request) -> Response:
        try:
            guard.check_host(headers_of(request.headers))
            return await handler(request)
        except (RequestRefusedError, *CLUSTER_ERRORS) as e:
            return problem_answer(e)

    return guarded


def _file_handlers() -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
    def serving(body: bytes, kind: str, tag: str) -> Callable[[Request], Awaitable[Response]]:
        async def file(request: Request) -> Response:
            headers = {"etag": tag, "cache-control": "no-cache"}
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers=headers)
            return Response(body, headers=headers, media_type=kind)

        return file

    return {each.path: serving(each.body, each.media_type, each.tag) for each in page_files()}


async def _body(request: Request) -> bytes:
    """The body. Raises RequestRefusedError for one that is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise RequestRefusedError(413, f"The body is larger than {BODY_BYTES_MAX} bytes")
    return bytes(body)
