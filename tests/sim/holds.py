"""Holds on single requests: the bytes of one connection, from the first byte of a chosen request on, come late.

The frame boundary shows in the four-byte size, the API key stands behind it. What follows on the same connection is
late too, since TCP keeps order; other connections are not, so a held request may arrive in another transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

NS_PER_MS = 1_000_000
REQUEST_HEAD_BYTES = 12
"""Size, API key, API version, correlation id."""
ANSWER_HEAD_BYTES = 8
"""Size, correlation id."""


class Hold(msgspec.Struct):
    """Delay the next `count` requests of API `api_key` from host `source` to host `sink` by `delay_ms`; then it is over.

    A name "" means any host. With `answers`, the answers to these requests are delayed in place of the requests.
    """

    api_key: int
    delay_ms: float
    source: str = ""
    sink: str = ""
    count: int = 1
    answers: bool = False

    def fits(self, api_key: int, source: str, sink: str) -> bool:
        return self.count > 0 and self.api_key == api_key and self.source in ("", source) and self.sink in ("", sink)


class FrameWatch:
    """Follows the frames of one direction and says which bytes are to be held for how long.

    `delay_ns(head)` is asked once for each frame, with its first `head_bytes` bytes.
    """

    __slots__ = ("_delay_ns", "_head", "_head_bytes", "_left")

    def __init__(self, head_bytes: int, delay_ns: Callable[[bytes], int]) -> None:
        self._head_bytes, self._delay_ns = head_bytes, delay_ns
        self._head = b""  # the beginning of a frame, too short to be known
        self._left = 0  # bytes until the next frame begins

    def cut(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """The same bytes in pieces, each with the delay before its first byte.

        Of a frame whose head came in two writes only what comes with the second can be held: held it is all the same.
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
    """The requests and answers of one connection, watched for what is to be held."""

    __slots__ = ("_held_answers", "_holds", "_note", "_sink", "_source")

    def __init__(self, holds: list[Hold], source: str, sink: str, note: Callable[[str, str], None]) -> None:
        self._holds, self._source, self._sink, self._note = holds, source, sink, note
        self._held_answers: dict[bytes, float] = {}

    def watches(self) -> tuple[FrameWatch, FrameWatch]:
        """For the requests and for the answers."""
        return FrameWatch(REQUEST_HEAD_BYTES, self._request), FrameWatch(ANSWER_HEAD_BYTES, self._answer)

    def _request(self, head: bytes) -> int:
        api_key, correlation_id = int.from_bytes(head[4:6], "big"), head[8:12]
        for hold in self._holds:
            if hold.fits(api_key, self._source, self._sink):
                hold.count -= 1
                if hold.answers:
                    self._held_answers[correlation_id] = hold.delay_ms
                    return 0
                self._note(self._source, f"request of API {api_key} to {self._sink} held for {hold.delay_ms:.0f} ms")
                return int(hold.delay_ms * NS_PER_MS)
        return 0

    def _answer(self, head: bytes) -> int:
        delay_ms = self._held_answers.pop(head[4:8], 0.0) if self._held_answers else 0.0
        if delay_ms:
            self._note(self._sink, f"an answer to {self._source} held for {delay_ms:.0f} ms")
        return int(delay_ms * NS_PER_MS)
