"""What a broker may answer to bytes that somebody sent: the response of that API and version, in order; or an end.

The judge reads the frames that were sent on its own: the correlation ids tell which of them an answer is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from semel_broker.config.loading import BrokerConfig
from semel_broker.handlers.api_versions import offered
from semel_protocol.api import APIS, Api
from semel_protocol.errors import ProtocolError
from semel_protocol.headers import RequestHeader, read_correlation_id, read_request_header, response_body_at
from support.virtual_loop import VirtualLoop

PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 11, 14, 18
JUDGED_AT_BYTES = 6
"""A broker looks at a frame once it has its size and API key."""
MAY_HOLD = {FETCH, JOIN_GROUP, SYNC_GROUP}
"""Requests that say themselves, or whose group says, how long they may be held."""


class Answers(asyncio.Protocol):
    """The reading end of a connection. `answered`: responses that came; `is_closed`: by the broker."""

    def __init__(self, loop: VirtualLoop, sent: Sequence[bytes], config: BrokerConfig) -> None:
        self._loop = loop
        self._config = config
        with loop.uncounted():
            self._waiting = whole_frames(b"".join(sent))
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self.answered = 0
        self.is_closed = False

    def data_received(self, data: bytes) -> None:
        with self._loop.uncounted():  # the broker's turns are measured, and not the judge's
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            assert size >= 4, f"an answer of {size} bytes"
            if len(self._buffer) < 4 + size:
                break
            self._judge(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]
        self._changed.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True
        self._changed.set()

    async def all_said(self, patience_s: float) -> None:
        """Wait until every frame has its answer, or the connection its end. Asserts that it comes to that."""
        try:
            async with asyncio.timeout(patience_s):
                while not self.is_closed and self._is_owed_an_answer():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            held = next(frame for frame in self._waiting if not self._needs_no_answer(frame))
            header = read_request_header(held)
            assert header.api_key in MAY_HOLD, f"no answer to {_described(header)} within {patience_s} s: {held.hex()}"
        if not self.is_closed:
            assert not self._buffer, f"half an answer: {bytes(self._buffer[:100])!r}"

    def _is_owed_an_answer(self) -> bool:
        with self._loop.uncounted():
            return any(not self._needs_no_answer(frame) for frame in self._waiting)

    def _judge(self, answer: bytes) -> None:
        correlation_id = read_correlation_id(answer)
        while self._waiting:
            sent = self._waiting.pop(0)
            header = read_request_header(sent)
            if header.correlation_id != correlation_id:
                assert self._needs_no_answer(sent), f"{_described(header)} was passed over"
                continue
            api = APIS[header.api_key]
            version = self._answer_version(api, header.api_version)
            _, end = api.response_codec(version).decode_at(answer, response_body_at(api, version, answer))
            assert end == len(answer), f"{_described(header)}: {len(answer) - end} bytes too many in the answer"
            self.answered += 1
            return
        raise AssertionError(f"an answer to {correlation_id}, which nobody asked")

    def _answer_version(self, api: Api, version: int) -> int:
        low, high = offered(self._config)[api.key]
        if api.key == API_VERSIONS and version > high:
            return 0  # in the oldest version, with the error that says so (KIP-511)
        assert low <= version <= high, f"{api.name} v{version} was answered"
        return version

    @staticmethod
    def _needs_no_answer(frame: bytes) -> bool:
        """Produce with acks=0. Anything that cannot be read is answered by an end."""
        try:
            header = read_request_header(frame)
            if header.api_key != PRODUCE:
                return False
            api = APIS[PRODUCE]
            request = api.decode_request(frame, header.api_version, header.body_at(api, frame))
        except (ProtocolError, AssertionError):
            return False
        return bool(request.acks == 0)


def whole_frames(data: bytes) -> list[bytes]:
    """The frames in a stream, up to the first that is not whole or cannot be one."""
    frames, at = [], 0
    while at + JUDGED_AT_BYTES <= len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size < 0 or at + 4 + size > len(data):
            break
        frames.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return frames


def _described(header: RequestHeader) -> str:
    api = APIS.get(header.api_key)
    return f"{api.name if api else header.api_key} v{header.api_version} #{header.correlation_id}"
