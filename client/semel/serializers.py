"""PURE. Serializers and deserializers: JSON, texts and whole numbers, in the formats of Kafka's own serializers.

    Producer(value_serializer=JsonSerializer[Order]())
    Consumer("orders", value_deserializer=JsonDeserializer(Order))

A serializer is a function that makes bytes, or None for a record without key or value. A deserializer is its inverse.
These serializers make None of None. These deserializers refuse None unless `nullable=True` is given, so that a value
has the declared type. docs/serializers.md explains both, and `semel.registry` has Avro and Protobuf.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import msgspec
from semel_protocol.errors import PortableError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True, default=Any)
    T_contra = TypeVar("T_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
    T_contra = TypeVar("T_contra", contravariant=True)

__all__ = [
    "Deserializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "LongDeserializer",
    "LongSerializer",
    "NotReady",
    "StringDeserializer",
    "StringSerializer",
]


class NotReady(PortableError):  # noqa: N818  (it is a request to wait, no failure)
    """A deserializer raises it when it has to load something first, for example a schema.

    load: starts loading, or returns the future of the load in progress. The consumer waits for the future, then calls
    the deserializer again. If the future has an exception, the consumer raises it.
    """

    def __init__(self, load: Callable[[], asyncio.Future[None]]) -> None:
        super().__init__("a deserializer has to load something first")
        self.load = load


class Deserializer(ABC, Generic[T_co]):
    """Base of the deserializers: what becomes of a record without key or value is the same for all.

    nullable: None stays None. Without it None is refused.
    value_type: the type of the values as far as it is known, for the columns of `to_arrow`.
    """

    value_type: Any = Any

    def __init__(self, *, nullable: bool = False) -> None:
        self._nullable = nullable

    def __call__(self, data: bytes | None) -> T_co:
        """The value of these bytes. Raises what `read` raises, and ValueError for None without `nullable`."""
        if data is not None:
            return self.read(data)
        if self._nullable:
            return None  # type: ignore[return-value]
        raise ValueError(f"it is null: {type(self).__name__}(..., nullable=True) makes None of null")

    @abstractmethod
    def read(self, data: bytes) -> T_co:
        """The value of these bytes, which are not None. Raises an exception for bytes that cannot be read."""


class JsonSerializer(Generic[T_contra]):
    """Writes values as JSON, with msgspec: structs, dataclasses, dicts, dates and what else msgspec knows.

    `JsonSerializer[Order]()` tells type checkers what the producer takes. It has no effect at run time.
    """

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, value: T_contra | None) -> bytes | None:
        """The JSON text; None of None. Raises TypeError for a value that JSON cannot express."""
        return None if value is None else self._encode(value)


class JsonDeserializer(Deserializer[T_co]):
    """Reads JSON as values of a type, and checks it, with msgspec. Without a type: dicts, lists and simple values.

    A union such as `Order | Refund` works too; a type checker takes its values for Any.
    """

    @overload
    def __init__(self: JsonDeserializer[Any], *, nullable: bool = False) -> None: ...
    @overload
    def __init__(self: JsonDeserializer[T], value_type: type[T], *, nullable: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: JsonDeserializer[T | None], value_type: type[T], *, nullable: bool) -> None: ...
    @overload
    def __init__(self: JsonDeserializer[Any], value_type: Any, *, nullable: bool = False) -> None: ...
    def __init__(self, value_type: Any = Any, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.value_type = value_type
        self._decode = msgspec.json.Decoder(value_type).decode

    def read(self, data: bytes) -> T_co:
        return self._decode(data)  # type: ignore[no-any-return]


class StringSerializer:
    """Writes texts as UTF-8, as Kafka's StringSerializer."""

    def __call__(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()


class StringDeserializer(Deserializer[T_co]):
    """Reads UTF-8."""

    value_type = str

    @overload
    def __init__(self: StringDeserializer[str], *, nullable: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: StringDeserializer[str | None], *, nullable: bool) -> None: ...
    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)

    def read(self, data: bytes) -> T_co:
        return data.decode()  # type: ignore[return-value]


class _NumberSerializer:
    """Writes whole numbers in two's complement, the highest byte first."""

    size_bytes: int

    def __call__(self, value: int | None) -> bytes | None:
        """The bytes; None of None. Raises OverflowError for a number that does not fit."""
        return None if value is None else value.to_bytes(self.size_bytes, "big", signed=True)


class IntegerSerializer(_NumberSerializer):
    """Writes whole numbers in 4 bytes, as Kafka's IntegerSerializer."""

    size_bytes = 4


class LongSerializer(_NumberSerializer):
    """Writes whole numbers in 8 bytes, as Kafka's LongSerializer."""

    size_bytes = 8


class IntegerDeserializer(Deserializer[T_co]):
    """Reads whole numbers of 4 bytes."""

    size_bytes = 4
    value_type = int

    @overload
    def __init__(self: IntegerDeserializer[int], *, nullable: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: IntegerDeserializer[int | None], *, nullable: bool) -> None: ...
    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)

    def read(self, data: bytes) -> T_co:
        if len(data) != self.size_bytes:
            raise ValueError(f"it has {len(data)} bytes: {type(self).__name__} reads {self.size_bytes}")
        return int.from_bytes(data, "big", signed=True)  # type: ignore[return-value]


class LongDeserializer(IntegerDeserializer[T_co]):
    """Reads whole numbers of 8 bytes."""

    size_bytes = 8

    @overload
    def __init__(self: LongDeserializer[int], *, nullable: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: LongDeserializer[int | None], *, nullable: bool) -> None: ...
    def __init__(self, *, nullable: bool = False) -> None:
        Deserializer.__init__(self, nullable=nullable)
