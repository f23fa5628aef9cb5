"""Delays single requests: the bytes of a connection from the first byte of the chosen request on arrive late.

The four-byte size shows the frame boundary, and the API key follows it. Later bytes on the same connection are late
too, since TCP keeps order. Other connections are not, so a held request may arrive during another transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from struct import Struct as Layout

import msgspec
from semel_protocol.api import APIS

NS_PER_MS = 1_000_000
REQUEST_HEAD_BYTES = 12
"""Size, API key, API version, correlation id."""
ANSWER_HEAD_BYTES = 8
"""Size, correlation id."""
_REQUEST_HEAD = Layout(">ihhi")
HELD_MOST_MS = 60_000
Say = Callable[[str, str], None]
"""Called with host and text."""
_TRANSACTIONS = (0, 0, 22, 22, 24, 26, 26, 26)
_GROUPS = (8, 8, 9, 11, 12, 13, 14)
API_KEYS_OF: Mapping[str, tuple[int, ...]] = {
    "writer": (0, 0, 0, 3, 22),
    "reader": (1, 2),
    "member": (1, *_GROUPS),
    "transactor": _TRANSACTIONS,
    "worker": (*_TRANSACTIONS, 25, 28, 28, 28, *_GROUPS),
    "epoch-worker": (*_TRANSACTIONS, 25, 28, 28, 28, 28, 9, 68, 68, 68),
    "administrator": (19, 20, 21, 37, 44),
    "driver": (20_001, 20_001, 20_002, 20_002, 20_002),
    "tasker": (0, 0, 22, 22, 24, 26, 28, 28),
    "subscriber": (1, 8, 8, 9, 68, 68, 68, 69),
    "renewer": (3, 19, 19, 20, 20),
    "id-writer": (0, 0, 0, 3),
    "intruder": (0, 1),
    "renewal-reader": (1, 1, 3, 8, 8, 9, 11, 14, 68),
}
"""Requests for holds and triggers, by the role of the client that sends them. A repeated key has more weight."""
LATE_OF: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "writer": ((0,), (0, 0, 0, 22)),
    "member": ((8, 8, 8, 11, 12, 14), (8, 11, 11, 14, 14)),
    "transactor": ((0, 0, 24, 26, 26), (0, 22, 24, 26, 26)),
    "worker": ((0, 0, 8, 24, 25, 26, 26, 28, 28), (0, 14, 22, 24, 26, 26, 28)),
    "epoch-worker": ((0, 0, 24, 26, 26, 28, 28, 68, 68), (0, 22, 24, 26, 26, 28, 68, 68)),
    "administrator": ((19, 20, 21, 37, 44), (3, 19, 20, 21, 37)),
    "driver": ((20_001, 20_002, 20_002), (20_001, 20_002, 20_002)),
    "tasker": ((0, 0, 22, 24, 26, 28), (0, 22, 22, 24, 26, 28)),
    "subscriber": ((8, 8, 68, 68, 9), (8, 68, 68, 68)),
    "renewer": ((19, 20, 20), (3, 19, 19, 20)),
    "renewal-reader": ((8, 8, 8, 9, 11, 68), (1, 3, 8, 8, 9, 14, 68)),
}
"""By the role of the client: requests to hold, and the later requests of the same client that release them."""


class HeldConnection(msgspec.Struct, frozen=True):
    """Acts on a connection. `release`: end all holds on it after so many ms. `reset_client`: the client sees a reset;
    the bytes that it has sent still arrive.
    """

    release: Callable[[float], object]
    reset_client: Callable[[], object]


NO_WIRE = HeldConnection(lambda delay_ms: None, lambda: None)


class Hold(msgspec.Struct):
    """Delay the next `count` requests of API `api_key` from host `source` to host `sink` by `delay_ms`.

    A name "" means any host. With `answers`, the answers to these requests are delayed instead of the requests.

    `until` >= 0: each request is held until `source` has sent `past` requests of that API over other connections, and
    `delay_ms` longer. `breaks`: `source` sees the connection reset as soon as a request is held.
    """

    api_key: int
    delay_ms: float
    source: str = ""
    sink: str = ""
    count: int = 1
    answers: bool = False
    until: int = -1
    past: int = 1
    breaks: bool = False

    def fits(self, api_key: int, source: str, sink: str) -> bool:
        return self.count > 0 and self.api_key == api_key and self.source in ("", source) and self.sink in ("", sink)


class RequestTrigger(msgspec.Struct):
    """Call `callback` once, with the sink's name, when host `source` ("": any) sends a request of API `api_key`."""

    api_key: int
    source: str
    callback: Callable[[str], object]


class LateRequest(msgspec.Struct):
    """A request that is held until `source` has sent `left` more requests of API `api_key` outside of `talk`."""

    api_key: int
    source: str
    left: int
    talk: Conversation
    release: Callable[[], object]


class HeldRequest(msgspec.Struct, frozen=True):
    """A request of host `source`, or its answer, that is held from `at_ms` on for at most `delay_ms`."""

    at_ms: float
    source: str
    api: str
    delay_ms: float
    is_answer: bool


class FrameWatch:
    """Follows the frames in one direction of a connection and decides how long bytes are held.

    `delay_ns(head)` is called once for each frame, with its first `head_bytes` bytes.
    """

    __slots__ = ("_delay_ns", "_head", "_head_bytes", "_left")

    def __init__(self, head_bytes: int, delay_ns: Callable[[bytes], int]) -> None:
        self._head_bytes, self._delay_ns = head_bytes, delay_ns
        self._head = b""  # the beginning of a frame, too short to be known
        self._left = 0  # bytes until the next frame begins

    def cut(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """The same bytes in pieces, each with the delay before its first byte.

        If the head of a frame comes in two writes, only the bytes from the second write on are held.
        """
        start, at, hold_ns = 0, 0, 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            step = min(self._head_bytes - len(self._head), len(data) - at)
            self._head += data[at : at + step]
            if len(self._head) < self._head_bytes:
                break
            head, self._head = self._head, b""
            delay_ns = self._delay_ns(head)
            if delay_ns:
                if at > start:
                    yield data[start:at], hold_ns
                start, hold_ns = at, delay_ns
            self._left = max(0, int.from_bytes(head[:4], "big") + 4 - self._head_bytes)
            at += step
        if start < len(data):
            yield data[start:], hold_ns


class Conversation:
    """Follows the requests and answers of one connection: reports them, calls triggers, and applies holds.

    `note` is for events that change the run, `tell` for others. `held` is called for each held frame with its API, the
    delay in ms, and whether it is an answer.
    """

    __slots__ = ("_aims", "_asked", "_held", "_holds", "_late", "_note", "_sink", "_source", "_tell", "wire")

    def __init__(
        self,
        holds: list[Hold],
        aims: list[RequestTrigger],
        late: list[LateRequest],
        source: str,
        sink: str,
        note: Say,
        tell: Say,
        held: Callable[[str, float, bool], None],
    ) -> None:
        self._holds, self._aims, self._late = holds, aims, late
        self._source, self._sink = source, sink
        self.wire: HeldConnection = NO_WIRE
        self._note, self._tell, self._held = note, tell, held
        self._asked: dict[bytes, tuple[str, float]] = {}
        """Correlation id -> name of the request, and the delay in ms of its answer."""

    def watches(self) -> tuple[FrameWatch, FrameWatch]:
        """The watches for the requests and for the answers."""
        return FrameWatch(REQUEST_HEAD_BYTES, self._request), FrameWatch(ANSWER_HEAD_BYTES, self._answer)

    def _request(self, head: bytes) -> int:
        size, api_key, version, number = _REQUEST_HEAD.unpack(head)
        api = APIS.get(api_key)
        name = f"{api.name if api is not None else api_key} v{version} #{number}"
        self._tell(self._source, f"> {name}, {size} bytes")
        for trigger in self._aims:
            if trigger.api_key == api_key and trigger.source in ("", self._source):
                self._aims.remove(trigger)
                trigger.callback(self._sink)
                break
        for late in [each for each in self._late if each.api_key == api_key and each.source == self._source]:
            late.left -= late.talk is not self
            if late.left <= 0:
                self._late.remove(late)
                late.release()
        held_ms, answer_held_ms = 0.0, 0.0
        for hold in self._holds:
            if hold.fits(api_key, self._source, self._sink):
                hold.count -= 1
                if hold.until >= 0:
                    held_ms = self._hold_until(hold, name)
                elif hold.answers:
                    answer_held_ms = hold.delay_ms
                else:
                    held_ms = hold.delay_ms
                    self._note(self._source, f"{name} held for {held_ms:.0f} ms")
                    self._held(name.partition(" ")[0], held_ms, False)
                break
        self._asked[head[8:12]] = name, answer_held_ms
        return int(held_ms * NS_PER_MS)

    def _hold_until(self, hold: Hold, name: str) -> float:
        """Hold a request until its client continues. Returns the longest time in ms."""
        release = partial(self.wire.release, hold.delay_ms)
        self._late.append(LateRequest(hold.until, self._source, hold.past, self, release))
        self._note(self._source, f"{name} held until {hold.past} more of API {hold.until} and {hold.delay_ms:.0f} ms")
        self._held(name.partition(" ")[0], HELD_MOST_MS, False)
        if hold.breaks:
            self.wire.reset_client()
        return HELD_MOST_MS

    def _answer(self, head: bytes) -> int:
        name, held_ms = self._asked.pop(head[4:8], ("?", 0.0))
        self._tell(self._sink, f"< {self._source} {name}, {int.from_bytes(head[:4], 'big')} bytes")
        if held_ms:
            self._note(self._sink, f"the answer to {name} held for {held_ms:.0f} ms")
            self._held(name.partition(" ")[0], held_ms, True)
        return int(held_ms * NS_PER_MS)
