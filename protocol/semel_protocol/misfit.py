"""Finds the value of a message that does not fit its field, after an encoder has failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from semel_protocol.errors import ProtocolError
from semel_protocol.fields import Array, Encoded, Field, Kind, fields_of
from semel_protocol.visible import shown

_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_SHORT_TEXT_BYTES_MAX = 32_767


class UnfitError(ProtocolError):
    """A message cannot be encoded. The text names the field and its value.

    reason: the field, its value and what is wrong with it. is_of_version: a newer version of the message can carry it.
    is_of_type: the value has the right type, and another one of this type would fit.
    """

    def __init__(self, message: str, reason: str, *, is_of_version: bool, is_of_type: bool) -> None:
        super().__init__(message)
        self.reason, self.is_of_version, self.is_of_type = reason, is_of_version, is_of_type


class _Misfit(msgspec.Struct):
    path: str
    value: Any
    problem: str
    is_of_version: bool = False
    is_of_type: bool = False

    @property
    def reason(self) -> str:
        kind = "" if self.value is None or self.is_of_type else f" ({type(self.value).__name__})"
        return f"{self.path}={shown(self.value)}{kind}: {self.problem}"


def unfit(message: msgspec.Struct, version: int, flexible: bool, error: Exception) -> UnfitError:
    """The exception for a message that raised `error` in its encoder."""
    found = next(_misfits(message, type(message), version, flexible, ""), None)
    if found is None:
        found = _Misfit("a field", None, str(error))
    text = f"cannot encode {type(message).__name__} v{version}: {found.reason}"
    return UnfitError(text, found.reason, is_of_version=found.is_of_version, is_of_type=found.is_of_type)


def _misfits(message: Any, cls: type[msgspec.Struct], version: int, flexible: bool, path: str) -> Iterator[_Misfit]:
    if not isinstance(message, cls):
        yield _Misfit(path.removesuffix("."), message, f"not a {cls.__name__}")
        return
    for field in fields_of(cls):
        if field.exists_in(version):
            yield from _of_field(field, getattr(message, field.name), version, flexible, f"{path}{field.name}")


def _of_field(field: Field, value: Any, version: int, flexible: bool, path: str) -> Iterator[_Misfit]:
    if value is None:
        if not field.nullable_in(version):
            later = field.nullable_since is not None
            yield _Misfit(path, None, "null needs a newer version" if later else "not null", is_of_version=later)
    elif isinstance(field.type, Array):
        if isinstance(value, Encoded):
            return
        if not isinstance(value, list | tuple):
            yield _Misfit(path, value, "not a list")
            return
        for at, each in enumerate(value):
            yield from _of_value(field.type.element, each, version, flexible, f"{path}[{at}]")
    else:
        yield from _of_value(field.type, value, version, flexible, path)


def _of_value(
    kind: Kind | type[msgspec.Struct], value: Any, version: int, flexible: bool, path: str
) -> Iterator[_Misfit]:
    if not isinstance(kind, Kind):
        yield from _misfits(value, kind, version, flexible, f"{path}.")
    elif kind in _BITS:
        most = (1 << (_BITS[kind] - 1)) - 1
        if not hasattr(type(value), "__index__"):
            yield _Misfit(path, value, "not a whole number")
        elif not -most - 1 <= value <= most:
            yield _Misfit(path, value, f"not from {-most - 1} to {most}", is_of_type=True)
    elif kind is Kind.STRING:
        yield from _of_text(value, flexible, path)
    elif kind is Kind.FLOAT64:
        if not isinstance(value, int | float):
            yield _Misfit(path, value, "not a number")
    elif kind is not Kind.BOOL and not isinstance(value, bytes | bytearray | memoryview):
        yield _Misfit(path, value, "not bytes")


def _of_text(value: Any, flexible: bool, path: str) -> Iterator[_Misfit]:
    if not isinstance(value, str):
        yield _Misfit(path, value, "not a str")
        return
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        yield _Misfit(path, value, f"not Unicode text: {error.reason}", is_of_type=True)
        return
    if size > _SHORT_TEXT_BYTES_MAX and not flexible:
        yield _Misfit(path, value, f"longer than {_SHORT_TEXT_BYTES_MAX} bytes", is_of_type=True)
