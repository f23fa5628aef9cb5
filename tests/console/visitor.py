"""A browser in the tests of the API: requests to the ASGI application, without server and network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from semel_console.app import Producing, console_app
from semel_console.guard import WRITE_HEADER, ConsoleGuard
from semel_console.link import ClusterLink

if TYPE_CHECKING:
    from semel_console.decoding import Decoder

HOST = "127.0.0.1:9480"
LIMIT_S = 20


class HttpAnswer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"]["text"])


class Visitor:
    """Sends the requests of the console's own page. Keyword arguments change them: `origin=None` omits a header."""

    def __init__(
        self,
        link: ClusterLink,
        guard: ConsoleGuard,
        *,
        every_s: float = 0.01,
        producing: Producing | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self.guard = guard
        self.app = console_app(link, guard, every_s=every_s, producing=producing, decoder=decoder)
        self.cookie: str | None = None
        self.write_token = ""

    async def enter(self) -> None:
        """The first visit, with the token."""
        entered = await self.post("/api/login", {"token": self.guard.token})
        assert entered.status == 200, entered.body
        self.cookie = entered.headers["set-cookie"].partition(";")[0]
        self.write_token = (await self.get("/api/session")).json["write_token"] or ""

    async def facts(self, name: str, **parameters: object) -> Any:
        """The facts of a page; an error fails the test."""
        found = await self.get(f"/api/facts/{name}?{urlencode(parameters)}")
        assert found.status == 200, found.body
        return found.json

    async def get(self, path: str, **changed: str | None) -> HttpAnswer:
        return await self._request("GET", path, b"", {"sec-fetch-site": "same-origin", **changed})

    async def post(self, path: str, body: object, **changed: str | None) -> HttpAnswer:
        given = {
            "origin": f"http://{HOST}",
            "sec-fetch-site": "same-origin",
            "content-type": "application/json",
            WRITE_HEADER: self.write_token,
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        return await self._request("POST", path, json.dumps(body).encode(), given)

    @asynccontextmanager
    async def watching(self, name: str, **parameters: object) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """The events of a page: pairs of a name and a value."""
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            elif message.get("body"):
                pieces.put_nowait(message["body"])

        async def events() -> AsyncIterator[tuple[str, Any]]:
            while True:
                lines = (await asyncio.wait_for(pieces.get(), LIMIT_S)).decode().splitlines()
                if lines[0].startswith("event: "):
                    yield lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))

        path = f"/api/facts/{name}?{urlencode({**parameters, 'watch': 1})}"
        scope = self._scope("GET", path, {"sec-fetch-site": "same-origin"})
        served = asyncio.create_task(self.app(scope, receive, send))
        try:
            yield events()
        finally:
            gone.set()
            await asyncio.wait([served], timeout=LIMIT_S)
            assert served.done()

    async def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str | None]) -> HttpAnswer:
        asked: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        got: list[Mapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await asyncio.Event().wait()  # it stays until it has the answer
            raise AssertionError

        async def send(message: Mapping[str, Any]) -> None:
            got.append(message)

        await asyncio.wait_for(self.app(self._scope(method, path, headers), receive, send), LIMIT_S)
        shown = {name.decode(): value.decode() for name, value in got[0]["headers"]}
        return HttpAnswer(got[0]["status"], shown, b"".join(each.get("body", b"") for each in got[1:]))

    def _scope(self, method: str, path: str, headers: Mapping[str, str | None]) -> dict[str, Any]:
        given: dict[str, str | None] = {"host": HOST, "cookie": self.cookie, **headers}
        plain, _, query = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": plain,
            "raw_path": quote(plain).encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items() if value is not None],
            "client": ("127.0.0.1", 40_000),
            "server": ("127.0.0.1", 9480),
        }
