"""Reads message declarations: the fields of a class, their kinds and the versions they exist in.

`fields_of(cls)` reads the annotations of a message class once; `codegen` generates functions from them.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from functools import cache
from typing import Any

import msgspec

LAST_VERSION = 32767


class Kind(Enum):
    """A primitive type of the protocol. The value is its `struct` format; S, B and R have a variable size."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "S"
    BYTES = "B"
    RECORDS = "R"

    @property
    def is_fixed(self) -> bool:
        return self not in (Kind.STRING, Kind.BYTES, Kind.RECORDS)


class Since(msgspec.Struct, frozen=True):
    version: int


class Until(msgspec.Struct, frozen=True):
    version: int


class Tag(msgspec.Struct, frozen=True):
    number: int


class NullableSince(msgspec.Struct, frozen=True):
    version: int


class OnError(msgspec.Struct, frozen=True):
    value: Any


class Array(msgspec.Struct, frozen=True):
    """An array of primitives or of structs."""

    element: Kind | type[msgspec.Struct]


class Encoded(tuple[bytes, ...]):
    """The elements of an array of structs, already encoded; saves encoding many of them again.

    A message takes it in place of the list if the struct has only fields of fixed size. Tag buffers are added.
    """

    __slots__ = ()


class Field(msgspec.Struct, frozen=True):
    """One field of a message: `type` is a kind, an array, or the class of a nested struct.

    `on_error`: its value in a response that refuses a request; UNSET: none of its own.
    """

    name: str
    type: Kind | Array | type[msgspec.Struct]
    since: int = 0
    until: int = LAST_VERSION
    tag: int | None = None
    nullable_since: int | None = None
    default: Any = None
    on_error: Any = msgspec.UNSET

    def exists_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


_PLAIN: dict[Any, Kind] = {bool: Kind.BOOL, str: Kind.STRING, bytes: Kind.BYTES}


@cache
def fields_of(cls: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of `cls` in wire order. Raises TypeError for an annotation that has no encoding."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_field(cls, info, hints[info.name]) for info in msgspec.structs.fields(cls))


def first_version(cls: type[msgspec.Struct], name: str) -> int:
    """The first version that has the field `name`; LAST_VERSION + 1: the class has no such field."""
    return next((field.since for field in fields_of(cls) if field.name == name), LAST_VERSION + 1)


@cache
def has_field(cls: type[msgspec.Struct], name: str, version: int) -> bool:
    """Whether the field `name` exists in `version`."""
    return any(field.name == name and field.exists_in(version) for field in fields_of(cls))


def _field(cls: type, info: msgspec.structs.FieldInfo, hint: Any) -> Field:
    since, until, number, nullable_since = 0, LAST_VERSION, None, None
    on_error: Any = msgspec.UNSET
    hint, marks = _unwrap(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and not _kind(marks):
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        nullable_since = 0
        hint, inner = _unwrap(hint)
        marks += inner
    for mark in marks:
        match mark:
            case Since(version=version):
                since = version
            case Until(version=version):
                until = version
            case Tag(number=n):
                number = n
            case NullableSince(version=version):
                nullable_since = version
            case OnError(value=value):
                on_error = value
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    kind = _type(cls, info.name, hint, marks)
    return Field(info.encode_name, kind, since, until, number, nullable_since, default, on_error)


def _type(cls: type, name: str, hint: Any, marks: tuple[Any, ...]) -> Kind | Array | type[msgspec.Struct]:
    if kind := _kind(marks) or _PLAIN.get(hint):
        return kind
    if typing.get_origin(hint) is list:
        (element,) = typing.get_args(hint)
        element, inner = _unwrap(element)
        inside = _type(cls, name, element, inner)
        if not isinstance(inside, Array):
            return Array(inside)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    raise TypeError(f"{cls.__name__}.{name}: {hint!r} has no encoding in the protocol")


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(hint) is typing.Annotated:
        base, *marks = typing.get_args(hint)
        return base, tuple(marks)
    return hint, ()


def _kind(marks: tuple[Any, ...]) -> Kind | None:
    return next((mark for mark in marks if isinstance(mark, Kind)), None)
