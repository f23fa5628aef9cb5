"""Encodes and decodes request and response headers, and encodes whole frames.

A flexible version has request header 2 and response header 1, both with a tag buffer; other versions have 1 and 0.
The response of ApiVersions always has header 0, because the client does not know the versions of the broker yet
(KIP-511).
"""

from __future__ import annotations

import struct

import msgspec

from semel_protocol.api import Api
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ProtocolError
from semel_protocol.primitives import Buffer, skip_tagged_fields
from semel_protocol.schema import Message, Steps

_API_VERSIONS = ApiKey.API_VERSIONS.value
_REQUEST = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")
_NO_TAGS = b"\x00"

JOINED_CHUNKS = 1024
LARGE_CHUNK_BYTES = 16 << 10
"""Chunks of this size or more are not copied and joined with their neighbours."""


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request. `client_id_end` is the position where header 1 ends."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_id_end: int

    def body_at(self, api: Api, frame: Buffer) -> int:
        """The position of the body in `frame`. Raises ProtocolError for a malformed tag buffer."""
        if not api.is_flexible(self.api_version):
            return self.client_id_end
        try:
            return skip_tagged_fields(memoryview(frame), self.client_id_end)
        except IndexError:
            raise ProtocolError("the request header ends inside its tag buffer") from None


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame, which comes without its size prefix. Raises ProtocolError."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
    except struct.error:
        raise ProtocolError(f"a frame of {len(frame)} bytes is shorter than a request header") from None
    at = _REQUEST.size
    if length < 0:
        return RequestHeader(api_key, api_version, correlation_id, None, at)
    if at + length > len(frame):
        raise ProtocolError(f"client id of {length} bytes ends after the frame of {len(frame)} bytes")
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
    _drop_empty_end(out)
    return out


def encode_response_frame(api: Api, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """A whole response frame as chunks, size prefix included. Raises ProtocolError when a value does not fit."""
    out = _opened(api, version)
    api.response_codec(version).encode(message, out)
    out[0] = _RESPONSE.pack(4 + sum(map(len, out)), correlation_id)
    _drop_empty_end(out)
    return out


def encode_response_frame_in_steps(
    api: Api, version: int, correlation_id: int, message: Message
) -> Steps[list[Buffer]]:
    """As `encode_response_frame`, in steps of a few elements. Raises ProtocolError.

    Small neighbouring chunks are joined: a socket takes a limited number of chunks at once and fails above it (EINVAL).
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
    _drop_empty_end(whole)
    return whole


def _opened(api: Api, version: int) -> list[Buffer]:
    """The chunks before the body: an empty one, later replaced by size and correlation id, and the tag buffer."""
    return [b"", _NO_TAGS] if api.is_flexible(version) and api.key != _API_VERSIONS else [b""]


def _drop_empty_end(frame: list[Buffer]) -> None:
    """Drop empty chunks behind the last byte.

    asyncio's sockets of Python 3.12 to 3.14 would try to write them without end, and could not be closed
    (python/cpython issue 155888).
    """
    while not frame[-1]:
        frame.pop()


def _join(chunks: list[Buffer], whole: list[Buffer]) -> int:
    """Move `chunks` to the end of `whole` and join runs of small ones. Returns the bytes moved."""
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
    """The correlation id at the start of every response frame. Raises ProtocolError."""
    if len(frame) < 4:
        raise ProtocolError(f"a frame of {len(frame)} bytes is shorter than a response header")
    return int.from_bytes(frame[:4], "big", signed=True)


def response_body_at(api: Api, version: int, frame: Buffer) -> int:
    """The position of the body in a response frame. Raises ProtocolError."""
    if not api.is_flexible(version) or api.key == _API_VERSIONS:
        return 4
    try:
        return skip_tagged_fields(memoryview(frame), 4)
    except IndexError:
        raise ProtocolError("the response header ends inside its tag buffer") from None
