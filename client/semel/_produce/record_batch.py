"""A batch that the application fills itself, and the checks of keys, values, timestamps and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic

from semel_protocol.records import BatchBuilder
from semel_protocol.visible import shown

from semel._config.arguments import apply, refused, whole
from semel._config.client import CODEC_OF, Serializer
from semel._config.producer import ProducerConfig
from semel._produce.accumulator import Headers
from semel._type_variables import K_contra, V_contra
from semel.errors import IllegalOperation

GivenHeaders = Iterable[tuple[str, bytes | None]]
TIMESTAMP_MAX = (1 << 63) - 1


class RecordBatch(Generic[K_contra, V_contra]):
    """A batch that the application fills itself (aiokafka: BatchBuilder). Made by `Producer.create_batch`."""

    def __init__(self, config: ProducerConfig, now_ms: Callable[[], int]) -> None:
        self._config, self._now_ms = config, now_ms
        self._builder = BatchBuilder(CODEC_OF[config.compression_type], config.max_batch_size)
        self._closed = self._handed_over = False
        self.first_timestamp_ms = -1

    def append(
        self,
        *,
        timestamp: int | None = None,
        key: K_contra = None,  # type: ignore[assignment]
        value: V_contra = None,  # type: ignore[assignment]
        headers: GivenHeaders = (),
    ) -> int | None:
        """The record's position in the batch; None when it does not fit or the batch is closed. timestamp: ms since the
        epoch.
        """
        if self._closed:
            return None
        config = self._config
        timestamp = self._now_ms() if timestamp is None else checked_timestamp(timestamp, "timestamp")
        of_key, of_value = config.key_serializer, config.value_serializer
        key_bytes = as_bytes("key", of_key(key) if of_key else key, of_key)
        value_bytes = as_bytes("value", of_value(value) if of_value else value, of_value)
        position = self._builder.append(timestamp, key_bytes, value_bytes, checked_headers(headers))
        if position == 0:
            self.first_timestamp_ms = timestamp
        return position

    def close(self) -> None:
        """Close the batch: it takes no more records."""
        self._closed = True

    def closed(self) -> bool:
        return self._closed

    def size(self) -> int:
        """Bytes so far, uncompressed."""
        return self._builder.size_bytes

    def record_count(self) -> int:
        return self._builder.record_count

    def take_back(self) -> None:
        """The producer could not take the batch: it may be sent again."""
        self._handed_over = False

    def hand_over(self) -> BatchBuilder:
        """The builder for the producer to send. Raises IllegalOperation for an empty batch or a second call."""
        if self._handed_over or not self._builder.record_count:
            raise IllegalOperation("the batch was sent already" if self._handed_over else "the batch is empty")
        self._closed = self._handed_over = True
        return self._builder


def as_bytes(what: str, given: Any, serializer: Serializer | None = None) -> bytes | None:
    """Bytes unchanged, other buffers copied. serializer: the one that has returned them. Raises TypeError,
    ValueError.
    """
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(as_buffer(what, given))
    kind = type(given).__name__
    if serializer is not None:
        raise TypeError(f"{what}_serializer returned {shown(given)} ({kind}), not bytes: make it return bytes or None")
    raise TypeError(f"{what}={shown(given)} is {kind}, not bytes: encode it, or set {what}_serializer")


def as_buffer(what: str, given: bytes | bytearray | memoryview) -> memoryview:
    """The bytes of a buffer, not copied if they lie together. Raises ValueError for a released memoryview."""
    try:
        view = memoryview(given)
        return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    except ValueError as error:
        raise ValueError(f"{what}={shown(given)}: {error}") from None


def checked_timestamp(given: int, name: str = "timestamp_ms") -> int:
    """The timestamp, checked: milliseconds since the epoch. Raises TypeError, ValueError."""
    return whole(name, given, 0, TIMESTAMP_MAX, "milliseconds since the epoch, an int")


def checked_headers(given: GivenHeaders | None) -> Headers:
    """The headers as a tuple, read once. Raises TypeError, ValueError."""
    headers: Headers = () if given is None else apply(_headers, "headers", given)
    return headers


def _headers(path: str, given: Any) -> Headers:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise refused(path, given, "give pairs of a name and a value, as in [('source', b'web')]")
    return tuple(_header(f"{path}[{at}]", each) for at, each in enumerate(given))


def _header(path: str, given: Any) -> tuple[str, bytes | None]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise refused(path, given, "give a pair of a name and a value, as in ('source', b'web')")
    name, value = given
    if not isinstance(name, str):
        raise refused(f"{path}[0]", name, "give the header's name, a str")
    if not isinstance(value, bytes | bytearray | memoryview | None):
        raise refused(f"{path}[1]", value, f"give the value of header {shown(name)}, bytes or None")
    plain = str.__str__(name)
    try:
        plain.encode("utf-8", "surrogateescape")  # as records are encoded, so that names that are not UTF-8 go through
    except UnicodeEncodeError as error:
        raise refused(f"{path}[0]", name, f"it is not Unicode text: {error.reason}", ValueError) from None
    return plain, as_bytes(f"{path}[1]", value)
