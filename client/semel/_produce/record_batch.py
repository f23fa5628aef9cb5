"""A batch that the application fills itself, and the checks of keys, values, timestamps and headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

from semel_protocol.records import BatchBuilder

from semel._config.client import CODEC_OF, ProducerConfig
from semel._type_variables import K_contra, V_contra
from semel.errors import IllegalOperation

Headers = Sequence[tuple[str, bytes | None]]
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
        headers: Headers = (),
    ) -> int | None:
        """The record's position in the batch; None when it does not fit or the batch is closed. timestamp: ms since the
        epoch.
        """
        if self._closed:
            return None
        config = self._config
        timestamp = self._now_ms() if timestamp is None else checked_timestamp(timestamp)
        key_bytes = as_bytes("key", config.key_serializer(key) if config.key_serializer else key)
        value_bytes = as_bytes("value", config.value_serializer(value) if config.value_serializer else value)
        position = self._builder.append(timestamp, key_bytes, value_bytes, checked_headers(headers) or ())
        if position == 0:
            self.first_timestamp_ms = timestamp
        return position

    def close(self) -> None:
        """Closes the batch: it takes no more records."""
        self._closed = True

    def closed(self) -> bool:
        return self._closed

    def size(self) -> int:
        """Bytes so far, uncompressed."""
        return self._builder.size_bytes

    def record_count(self) -> int:
        return self._builder.record_count

    def hand_over(self) -> BatchBuilder:
        """The builder for the producer to send. Raises IllegalOperation for an empty batch or a second call."""
        if self._handed_over or not self._builder.record_count:
            raise IllegalOperation("the batch was sent already" if self._handed_over else "the batch is empty")
        self._closed = self._handed_over = True
        return self._builder


def as_bytes(what: str, given: Any) -> bytes | None:
    """Bytes unchanged, other buffers copied. Raises TypeError."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(f"{what} is {type(given).__name__}, not bytes: encode it, or set {what}_serializer")


def checked_timestamp(given: int) -> int:
    """The timestamp, checked: milliseconds since the epoch. Raises TypeError, ValueError."""
    if not isinstance(given, int):
        raise TypeError(f"timestamp {given!r} is {type(given).__name__}, not int: give milliseconds since the epoch")
    if not 0 <= given <= TIMESTAMP_MAX:
        raise ValueError(f"timestamp {given} is out of range: give milliseconds since the epoch")
    return given


def checked_headers(given: Headers | None) -> Headers | None:
    """The headers, checked. Raises TypeError."""
    for header in given or ():
        name, value = header
        if not isinstance(name, str) or not isinstance(value, (bytes, type(None))):
            raise TypeError(f"header {header!r} is not (str, bytes or None)")
    return given
