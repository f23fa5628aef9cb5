"""Request and response headers, and whole frames made of them.

A flexible version has request header 2 and response header 1 (both with a tag buffer), any other 1 and 0.
ApiVersions is the exception: its response always has header 0, because the client does not know yet what the broker
speaks (KIP-511).
"""

from __future__ import annotations

import struct

import msgspec

from semel_protocol.api import Api
from semel_protocol.errors import ProtocolError
from semel_protocol.primitives import Buffer, skip_tagged_fields
from semel_protocol.schema import Message, Steps

_API_VERSIONS = 18
_REQUEST = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")
_NO_TAGS = b"\x00"

JOINED_CHUNKS = 1024
LARGE_CHUNK_BYTES = 16 << 10
"""Chunks from this size on are not copied to be joined with their neighbours."""


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """What stands before a request's body. `client_id_end` is where header 1 ends."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_id_end: int

    def body_at(self, api: Api, frame: Buffer) -> int:
        """Where the body starts in `frame`. Raises ProtocolError for a broken tag buffer."""
        if not api.is_flexible(self.api_version):
            return self.client_id_end
        try:
            return skip_tagged_fields(memoryview(frame), self.client_id_end)
        except IndexError:
            raise ProtocolError("the request header ends inside its tag buffer") from None


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame (without its size). Raises ProtocolError."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
    except struct.error:
        raise ProtocolError(f"a frame of {len(frame)} bytes is shorter than a request header") from None
    at = _REQUEST.size
    if length < 0:
        return RequestHeader(api_key, api_version, correlation_id, None, at)
    if at + length > len(frame):
        raise ProtocolError(f"client id of {length} bytes ends behind the frame of {len(frame)}")
    try:
        client_id = str(frame[at : at + length], "utf-8")
    except UnicodeDecodeError as e:
        raise ProtocolError(f"client id is not UTF-8: {e}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, at + length)


def encode_request_frame(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Buffer]:
    """A whole request frame as chunks, size prefix included. Raises ProtocolError when a value does not fit."""
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST.pack(api.key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if api.is_flexible(version):
        header += _NO_TAGS
    out: list[Buffer] = [b"", header]
    api.request_codec(version).encode(message, out)
    out[0] = sum(map(len, out)).to_bytes(4, "big")
    return out


def encode_response_frame(api: Api, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """A whole response frame as chunks, size prefix included. Raises ProtocolError when a value does not fit."""
    out = _opened(api, version)
    api.response_codec(version).encode(message, out)
    out[0] = _RESPONSE.pack(4 + sum(map(len, out)), correlation_id)
    return out


def encode_response_frame_in_steps(
    api: Api, version: int, correlation_id: int, message: Message
) -> Steps[list[Buffer]]:
    """The same a few elements at a time, in few chunks however many fields there are. Raises ProtocolError.

    A socket takes a limited number of chunks at once (EINVAL above it), so small neighbours are joined.
    """
    whole: list[Buffer] = [b""]
    size = 0
    recent = _opened(api, version)
    for count in api.response_codec(version).encode_in_steps(message, recent):
        if len(recent) >= JOINED_CHUNKS:
            size += _join(recent, whole)
        yield count
    size += _join(recent, whole)
    whole[0] = _RESPONSE.pack(4 + size, correlation_id)
    return whole


def _opened(api: Api, version: int) -> list[Buffer]:
    """The chunks before the body: an empty one, the place of size and correlation id, and the header's tag buffer."""
    return [b"", _NO_TAGS] if api.is_flexible(version) and api.key != _API_VERSIONS else [b""]


def _join(chunks: list[Buffer], whole: list[Buffer]) -> int:
    """Move `chunks` behind `whole`, runs of small ones as one; the number of bytes that these are."""
    small: list[Buffer] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if len(chunk) < LARGE_CHUNK_BYTES:
            small.append(chunk)
        else:
            whole += (b"".join(small), chunk)
            small = []
    whole.append(b"".join(small))
    chunks.clear()
    return size


def read_correlation_id(frame: Buffer) -> int:
    """The correlation id that opens every response frame. Raises ProtocolError."""
    if len(frame) < 4:
        raise ProtocolError(f"a frame of {len(frame)} bytes is shorter than a response header")
    return int.from_bytes(frame[:4], "big", signed=True)


def response_body_at(api: Api, version: int, frame: Buffer) -> int:
    """Where the body of a response frame starts. Raises ProtocolError."""
    if not api.is_flexible(version) or api.key == _API_VERSIONS:
        return 4
    try:
        return skip_tagged_fields(memoryview(frame), 4)
    except IndexError:
        raise ProtocolError("the response header ends inside its tag buffer") from None
