"""A schema registry in this process: the part of its REST API that serializers use, over h11."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import unquote

import h11


class FakeRegistry:
    """Listens on loopback. Ids are the same for equal schemas; versions count for each subject.

    requests: method and path of each request. status: 0, or the HTTP status of all answers.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        self.status = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def __aenter__(self) -> FakeRegistry:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def asked(self, method: str) -> list[str]:
        """The paths of the requests with this method."""
        return [path for each, path in self.requests if each == method]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        body = b""
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(65_536))
                elif isinstance(event, h11.Request):
                    request, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    await self.gate.wait()
                    method, path = request.method.decode(), request.target.decode()
                    self.requests.append((method, path))
                    status, answer = self._answer(method, path.partition("?")[0], json.loads(body or b"{}"))
                    data = json.dumps(answer).encode()
                    headers = [("content-type", "application/json"), ("content-length", str(len(data)))]
                    for part in (
                        h11.Response(status_code=status, headers=headers),
                        h11.Data(data=data),
                        h11.EndOfMessage(),
                    ):
                        writer.write(connection.send(part) or b"")
                    connection.start_next_cycle()
                else:
                    return
        except (ConnectionError, h11.RemoteProtocolError):
            return
        finally:
            writer.close()

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.status:
            return self.status, {"error_code": self.status, "message": "as the test wants it"}
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["subjects", subject]:
                for version, schema_id in enumerate(self.subjects.get(subject, []), 1):
                    if self._same(schema_id, body):
                        return 200, self._described(subject, version, schema_id)
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", version]:
                known = self.subjects.get(subject, [])
                at = len(known) if version == "latest" else int(version)
                if not 1 <= at <= len(known):
                    return 404, {"error_code": 40401, "message": "Subject not found"}
                return 200, self._described(subject, at, known[at - 1])
            case "GET", ["schemas", "ids", number] if 1 <= int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case "GET", ["schemas", "ids", number, "versions"]:
                return 200, [
                    {"subject": subject, "version": version}
                    for subject, known in self.subjects.items()
                    for version, schema_id in enumerate(known, 1)
                    if schema_id == int(number)
                ]
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _register(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        schema_id = next((i for i in range(1, len(self.schemas) + 1) if self._same(i, body)), 0)
        if not schema_id:
            self.schemas.append(body)
            schema_id = len(self.schemas)
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return 200, {"id": schema_id}

    def _same(self, schema_id: int, body: dict[str, Any]) -> bool:
        known = self.schemas[schema_id - 1]
        return all(known.get(name) == body.get(name) for name in ("schema", "schemaType", "references"))

    def _described(self, subject: str, version: int, schema_id: int) -> dict[str, Any]:
        return {"subject": subject, "version": version, "id": schema_id, **self.schemas[schema_id - 1]}
