"""A TCP proxy between clients and the broker: delays, holds, loses and cuts Kafka frames, and resets connections.

Bytes of one direction of a connection keep their order, as with TCP: frames after a held frame wait, too. Bytes that a
client sent before it closed its connection still reach the broker, as packets in the network would.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from enum import Enum

from semel_protocol.api import APIS
from semel_protocol.headers import read_request_header

RST = struct.pack("ii", 1, 0)
"""SO_LINGER of a close that is a reset."""
QUEUE_FRAMES = 1024
CONNECT_AGAIN_S = 0.05
LOST = (ConnectionError, OSError, asyncio.IncompleteReadError)

API_NAMES = {key: api.name for key, api in APIS.items()}


class Direction(Enum):
    REQUEST = "request"
    ANSWER = "answer"


class FrameRule:
    """Applies to the next frame of one API of one client in one direction. The frame is held until `release`; with
    `lose` it is never delivered, and its connection is reset, so that the client notices.
    """

    def __init__(self, client_id: str, api: str, direction: Direction, *, lose: bool = False) -> None:
        assert api in API_NAMES.values(), f"{api} is not an API; the APIs are {', '.join(sorted(API_NAMES.values()))}"
        self.client_id, self.api, self.direction, self.lose = client_id, api, direction, lose
        self.met = asyncio.Event()
        self.released = asyncio.Event()

    def fits(self, client_id: str, api: str, direction: Direction) -> bool:
        return (self.client_id, self.api, self.direction) == (client_id, api, direction) and not self.met.is_set()


class Proxy:
    """Listens on a free port of 127.0.0.1. `target_port`: the broker's; it may change while no client is connected.

    `delay_s`: least and most delay of a frame. `cut_chance`: the probability that a frame is cut in the middle and its
    connection reset. `counts`: the number of affected frames and connections by fault.
    """

    host = target_host = "127.0.0.1"
    """The addresses of the proxy and of the broker. The simulator replaces them."""

    def __init__(self, rng: random.Random, target_port: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self.delay_s = (0.0, 0.0)
        self.cut_chance = 0.0
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._rules: list[FrameRule] = []
        self._parted: dict[tuple[str, Direction], asyncio.Event] = {}
        self._links: dict[_ProxiedConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.heal()
        self.reset()
        await asyncio.gather(*[link.task for link in list(self._links)], return_exceptions=True)

    # --- faults ---

    def hold(self, client_id: str, api: str, direction: Direction) -> FrameRule:
        """Hold the next frame of this API, and all later frames of its connection."""
        return self._add(FrameRule(client_id, api, direction))

    def lose(self, client_id: str, api: str, direction: Direction) -> FrameRule:
        """Reset the connection in place of delivering the next frame of this API."""
        return self._add(FrameRule(client_id, api, direction, lose=True))

    def _add(self, rule: FrameRule) -> FrameRule:
        self._rules.append(rule)
        return rule

    async def met(self, client_id: str) -> None:
        """Return once each rule of this client has matched a frame."""
        await asyncio.gather(*[rule.met.wait() for rule in self._rules if rule.client_id == client_id])

    def release(self, client_id: str = "") -> None:
        """Deliver the held frames (of one client), and remove the rules."""
        for rule in list(self._rules):
            if client_id in ("", rule.client_id):
                self.release_rule(rule)

    def release_rule(self, rule: FrameRule) -> None:
        """Deliver the frames that this rule holds, if any, and remove the rule."""
        rule.released.set()
        if rule in self._rules:
            self._rules.remove(rule)

    def part(self, client_id: str = "", *directions: Direction) -> None:
        """Deliver no frames in these directions (default: both) until `join`. No end gets an error. "": all clients."""
        for direction in directions or Direction:
            self._parted.setdefault((client_id, direction), asyncio.Event())

    def join(self, client_id: str = "") -> None:
        """Deliver the frames that `part` has kept back."""
        for key in [key for key in self._parted if key[0] == client_id]:
            self._parted.pop(key).set()

    def reset(self, client_id: str = "") -> int:
        """Send RST to both ends of all connections (of one client). Returns their number."""
        links = [link for link in self._links if client_id in ("", link.client_id)]
        for link in links:
            link.abort()
        self.counts["reset"] += len(links)
        return len(links)

    def heal(self) -> None:
        """End all faults, and deliver all frames that were held or kept back."""
        self.delay_s, self.cut_chance = (0.0, 0.0), 0.0
        self.release()
        for client_id in {key[0]: None for key in self._parted}:
            self.join(client_id)

    # --- called by connections ---

    async def gate(self, link: _ProxiedConnection, api: str, direction: Direction) -> bool:
        """Wait until the frame may be delivered. Returns False if it is lost, and its connection must be reset."""
        for rule in list(self._rules):
            if rule.fits(link.client_id, api, direction):
                rule.met.set()
                self.counts["lost" if rule.lose else "held"] += 1
                if rule.lose:
                    return False
                await rule.released.wait()
                break
        while (parted := self._parting(link.client_id, direction)) is not None:
            self.counts["kept back"] += 1
            await parted.wait()
        return True

    def _parting(self, client_id: str, direction: Direction) -> asyncio.Event | None:
        return self._parted.get((client_id, direction)) or self._parted.get(("", direction))

    def delay(self) -> float:
        low, high = self.delay_s
        return self._rng.uniform(low, high) if high else 0.0

    def cuts(self) -> bool:
        cut = bool(self.cut_chance) and self._rng.random() < self.cut_chance
        self.counts["cut"] += cut
        return cut

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _ProxiedConnection(self, reader, writer)
        self._links[link] = None
        try:
            await link.run()
        finally:
            del self._links[link]


class _ProxiedConnection:
    """The connection of one client, and the proxy's connection to the broker for it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.client_id = ""
        self._proxy = proxy
        self._client = (reader, writer)
        self._broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asked: dict[int, str] = {}

    async def run(self) -> None:
        try:
            self._broker = await asyncio.open_connection(self._proxy.target_host, self._proxy.target_port)
        except OSError:
            self.abort()  # the broker is down
            return
        requests = asyncio.create_task(self._carry(self._client[0], self._broker[1], Direction.REQUEST))
        try:
            await self._carry(self._broker[0], self._client[1], Direction.ANSWER)
        finally:  # the broker has closed the connection: no request can be delivered
            requests.cancel()
            await asyncio.gather(requests, return_exceptions=True)
            self.abort()

    def abort(self) -> None:
        """Send RST to both ends."""
        for end in (self._client, self._broker):
            if end is not None:
                writer = end[1]
                end_socket = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    if end_socket is not None:
                        end_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
                writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        """Forward frames from one end to the other, until the sender has closed and all frames are delivered."""
        queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(QUEUE_FRAMES)
        reading = asyncio.create_task(self._read(reader, queue))
        now = asyncio.get_running_loop().time
        try:
            while (item := await queue.get()) is not None:
                due, frame = item
                if (wait_s := due - now()) > 0:
                    await asyncio.sleep(wait_s)
                if not await self._proxy.gate(self, self._api_of(frame, direction), direction):
                    self.abort()
                    return
                if self._proxy.cuts():
                    await self._deliver(frame[: len(frame) // 2], writer)
                    self.abort()
                    return
                await self._deliver(frame, writer)
            if writer.can_write_eof():
                writer.write_eof()
        except LOST:
            return  # the receiver has closed, too
        finally:
            reading.cancel()

    async def _deliver(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Write to an end, unless it is closed. The reader of the responses notices that the broker has closed."""
        if writer.is_closing():
            return
        writer.write(data)
        with contextlib.suppress(*LOST):
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes] | None]) -> None:
        now = asyncio.get_running_loop().time
        due = 0.0
        try:
            while True:
                size = await reader.readexactly(4)
                frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                due = max(due, now() + self._proxy.delay())
                await queue.put((due, frame))
        except LOST:
            await queue.put(None)

    def _api_of(self, frame: bytes, direction: Direction) -> str:
        if direction is Direction.ANSWER:
            return self._asked.pop(int.from_bytes(frame[4:8], "big", signed=True), "")
        header = read_request_header(frame[4:])
        self.client_id = header.client_id or ""
        api = API_NAMES.get(header.api_key, str(header.api_key))
        self._asked[header.correlation_id] = api
        return api
