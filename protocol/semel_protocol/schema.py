"""Declares messages with version marks on their fields and compiles a codec for each version.

    class HeartbeatRequest(Message):
        group_id: str
        generation_id: Int32
        member_id: str
        group_instance_id: Annotated[str | None, since(3)] = None

A field without a mark exists in every version. `| None` makes it nullable; `nullable(2)`: from version 2 on. `tag(n)`
puts it into the tag buffer (KIP-482), which contains it only if it differs from its default.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache, cached_property
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from semel_protocol.codegen import Functions, compile_codec
from semel_protocol.errors import ProtocolError
from semel_protocol.fields import Kind, NullableSince, OnError, Since, Tag, Until
from semel_protocol.misfit import unfit
from semel_protocol.primitives import Buffer

Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
Int32 = Annotated[int, Kind.INT32]
Int64 = Annotated[int, Kind.INT64]
Float64 = Annotated[float, Kind.FLOAT64]
Uuid = Annotated[bytes, Kind.UUID]
"""16 bytes; all zeros mean no id."""
Records = Annotated[Buffer, Kind.RECORDS]
"""Consecutive record batches. Decoded as a view into the message, to avoid copies."""

ZERO_UUID = bytes(16)


class Message(msgspec.Struct, gc=False):
    """The base of every request, response and stored record value."""


class SharedDefault(msgspec.Struct, gc=False, frozen=True):
    """The base of structs that are defaults of tagged fields. Messages without the tag share one of them."""


M = TypeVar("M", bound=msgspec.Struct)
T = TypeVar("T")

UNFIT = (struct.error, AttributeError, TypeError, UnicodeEncodeError, OverflowError)
"""Exceptions of generated encoders for a value that does not fit its field."""
MALFORMED = (ProtocolError, struct.error, IndexError, UnicodeDecodeError, OverflowError)
"""Exceptions of generated decoders for bytes that are not such a message."""


def since(version: int) -> Since:
    """The field exists from `version` on."""
    return Since(version)


def until(version: int) -> Until:
    """The field exists up to and including `version`."""
    return Until(version)


def tag(number: int) -> Tag:
    """The field is in the tag buffer under `number`."""
    return Tag(number)


def nullable(version: int) -> NullableSince:
    """The field may be null from `version` on."""
    return NullableSince(version)


def on_error(value: Any) -> OnError:
    """The field has this value in a response that refuses a request; see `semel_protocol.refusals`."""
    return OnError(value)


Steps = Generator[int, None, T]
"""Work in steps: yields the number of array elements of each step, returns the result."""


class Codec(Generic[M]):
    """Encodes and decodes one message class in one version."""

    def __init__(self, cls: type[M], version: int, flexible: bool) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        functions = compile_codec(cls, version, flexible)
        self._encode: Callable[[M, Callable[[Buffer], None]], None] = functions.encode
        self._decode: Callable[[memoryview, int], tuple[M, int]] = functions.decode

    @cached_property
    def _stepwise(self) -> Functions:
        """The generator functions, compiled at their first use."""
        return compile_codec(self.cls, self.version, self.flexible, in_steps=True)

    def encode(self, message: M, out: list[Buffer]) -> None:
        """Append the encoded chunks to `out`; record batches are not copied.

        Raises UnfitError if a value does not fit its field.
        """
        try:
            self._encode(message, out.append)
        except UNFIT as e:
            raise unfit(message, self.version, self.flexible, e) from e

    def encode_in_steps(self, message: M, out: list[Buffer]) -> Steps[None]:
        """As `encode`, in steps of a few elements. Raises ProtocolError, also between steps."""
        functions = self._stepwise
        try:
            encoded = functions.encode(message, out.append)
            if functions.in_steps:
                yield from encoded
        except UNFIT as e:
            raise unfit(message, self.version, self.flexible, e) from e

    def encode_bytes(self, message: M) -> bytes:
        """The encoded message as one bytes object. Raises ProtocolError."""
        out: list[Buffer] = []
        self.encode(message, out)
        return b"".join(out)

    def decode(self, data: Buffer, at: int = 0) -> M:
        """Decode the message that starts at byte `at`. Bytes after it are ignored, as in Kafka.

        Raises ProtocolError if the bytes are not such a message. Memory is bounded by the size of `data`.
        """
        return self.decode_at(data, at)[0]

    def decode_at(self, data: Buffer, at: int = 0) -> tuple[M, int]:
        """As `decode`; also returns the position after the message."""
        view = data if isinstance(data, memoryview) else memoryview(data)
        try:
            return self._decode(view, at)
        except MALFORMED as e:
            raise self._malformed(e) from e

    def decode_in_steps(self, data: Buffer, at: int = 0) -> Steps[M]:
        """As `decode`, in steps of a few elements. Raises ProtocolError, also between steps."""
        view = data if isinstance(data, memoryview) else memoryview(data)
        functions = self._stepwise
        try:
            decoded = functions.decode(view, at)
            message: M = (yield from decoded)[0] if functions.in_steps else decoded[0]
            return message
        except MALFORMED as e:
            raise self._malformed(e) from e

    def _malformed(self, error: Exception) -> ProtocolError:
        name = f"{self.cls.__name__} v{self.version}"
        if isinstance(error, ProtocolError):
            return ProtocolError(f"{name}: {error}")
        return ProtocolError(f"{name} is cut short or malformed: {error}")


@cache
def codec(cls: type[M], version: int, flexible: bool = False) -> Codec[M]:
    """The codec of `cls` in `version`, compiled at its first use. `flexible`: compact types and tag buffers."""
    made: Codec[Any] = Codec(cls, version, flexible)
    return made
