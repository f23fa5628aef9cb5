"""Checks the answers of a broker: the response of the right API and version, in order, or the end of the connection.

It decodes the sent frames independently of the broker. The correlation id of an answer identifies its request.
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
"""A broker judges a frame as soon as it has the size and the API key."""
MAY_HOLD = {FETCH, JOIN_GROUP, SYNC_GROUP}
"""Requests that the broker may hold for a time set by the request or by its group."""


class AnswerChecker(asyncio.Protocol):
    """Checks the answers of one connection. `answered`: their number. `is_closed`: the broker has closed it."""

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
        with self._loop.uncounted():  # only the CPU time of the broker counts
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

    async def all_answered(self, timeout_s: float) -> None:
        """Wait until each frame is answered or the connection is closed. Asserts that this happens in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_closed and self._is_owed_an_answer():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            held = next(frame for frame in self._waiting if not self._needs_no_answer(frame))
            header = read_request_header(held)
            assert header.api_key in MAY_HOLD, f"no answer to {_described(header)} within {timeout_s} s: {held.hex()}"
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
                assert self._needs_no_answer(sent), f"{_described(header)} was not answered"
                continue
            api = APIS[header.api_key]
            version = self._answer_version(api, header.api_version)
            _, end = api.response_codec(version).decode_at(answer, response_body_at(api, version, answer))
            assert end == len(answer), f"{_described(header)}: {len(answer) - end} bytes too many in the answer"
            self.answered += 1
            return
        raise AssertionError(f"an answer to the unknown correlation id {correlation_id}")

    def _answer_version(self, api: Api, version: int) -> int:
        low, high = offered(self._config, has_telemetry=True)[api.key]
        if api.key == API_VERSIONS and version > high:
            return 0  # UNSUPPORTED_VERSION in the oldest version (KIP-511)
        assert low <= version <= high, f"{api.name} v{version} was answered"
        return version

    @staticmethod
    def _needs_no_answer(frame: bytes) -> bool:
        """Whether the frame is a Produce with acks=0. A frame that cannot be decoded gets an end of the connection."""
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
    """The frames in a stream, up to the first that is incomplete or has an invalid size."""
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
