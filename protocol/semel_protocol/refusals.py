"""PURE: answers that refuse a request, made from the declarations of its messages.

A response is refused where it has an error code: at its top, or in each row of its arrays, one for each row of the
request. A row of the response names what its row of the request names: fields of the same name are copied, unless the
response declares a default of its own that is not zero, such as -1 for an unknown offset. A row that is a plain text or
number, and an index under another name, go into the first field of their type. `on_error` in a declaration gives a
field the value that goes with an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from semel_protocol.api import API_OF
from semel_protocol.fields import LAST_VERSION, Array, Field, Kind, fields_of
from semel_protocol.schema import ZERO_UUID, Message

ERROR_CODES = ("error_code", "partition_error_code")
"""Fields of responses: the second is Kafka's name in AddPartitionsToTxn."""
_ZEROS = (0, "", ZERO_UUID, msgspec.NODEFAULT)

M = TypeVar("M", bound=msgspec.Struct)


def refused(request: Message, code: int, why: str | None = None) -> Message:
    """The response to `request` with this error code, and `why` as the message of each error that can have one.

    If the top of the response has the code in every version, it has no rows.
    """
    return _made(API_OF[type(request)].response, request, code, why, is_row=False)


def refused_row(kind: type[M], asked: object, code: int, why: str | None = None) -> M:
    """A row of class `kind` that answers a row of the request, `asked`: a message, a text or a number."""
    return _made(kind, asked, code, why, is_row=True)


def rows_of(request: type[Message]) -> tuple[Field, Field]:
    """The first array of the request that has a row of the response for each of its rows, and that array of the
    response. Raises ValueError if there is none."""
    for theirs, ours in _pairs(API_OF[request].response, request):
        return theirs, ours
    raise ValueError(f"{API_OF[request].response.__name__} has no error code for each row of {request.__name__}")


def error_codes(response: msgspec.Struct) -> Iterator[int]:
    """All error codes of a response or of a row, also 0, at any depth."""
    for field in fields_of(type(response)):
        value = getattr(response, field.name)
        if field.name in ERROR_CODES:
            yield value
        elif isinstance(field.type, Array) and isinstance(field.type.element, type):
            for row in value or ():
                yield from error_codes(row)


def first_error(response: msgspec.Struct) -> int:
    """The first error code that is not 0, at any depth; 0: there is none."""
    return next((code for code in error_codes(response) if code), 0)


def _made(kind: type[M], asked: object, code: int, why: str | None, *, is_row: bool) -> M:
    asked_type: Any = type(asked)
    plan = _plan(kind, asked_type, is_row)
    fields = dict(plan.fixed)
    for name, source in plan.copied:
        fields[name] = asked if source is None else getattr(asked, source)
    for name in plan.codes:
        fields[name] = code
    if plan.has_message:
        fields["error_message"] = why
    for name, source, element, has_errors in plan.arrays:
        rows = getattr(asked, source) or ()
        if has_errors:
            fields[name] = [_made(element, row, code, why, is_row=True) for row in rows]
        else:
            fields[name] = [element(**msgspec.structs.asdict(row)) for row in rows]
    return kind(**fields)


class _RefusalPlan(msgspec.Struct, frozen=True):
    """How a refusal is made of a row. `copied`: (field, field of the request; None: the row itself).

    `arrays`: (field, field of the request, class of the elements, whether they have error codes).
    """

    fixed: dict[str, Any]
    copied: Sequence[tuple[str, str | None]]
    codes: Sequence[str]
    has_message: bool
    arrays: Sequence[tuple[str, str, type[msgspec.Struct], bool]]


@cache
def _plan(kind: type[msgspec.Struct], asked: type, is_row: bool) -> _RefusalPlan:
    fields = fields_of(kind)
    codes = [field for field in fields if field.name in ERROR_CODES]
    is_complete = any(field.since == 0 and field.until == LAST_VERSION for field in codes)
    pairs = [] if is_complete else _pairs(kind, asked)
    return _RefusalPlan(
        fixed={field.name: field.on_error for field in fields if field.on_error is not msgspec.UNSET},
        copied=list(_copied(fields, asked)) if is_row else [],
        codes=[field.name for field in codes],
        has_message=any(field.name == "error_message" for field in fields),
        arrays=[(ours.name, theirs.name, _element(ours), True) for theirs, ours in pairs]
        + ([(name, name, element, False) for name, element in _echoes(fields, asked)] if is_row else []),
    )


def _pairs(kind: type[msgspec.Struct], asked: type) -> list[tuple[Field, Field]]:
    """The arrays of the request, each with the array of the response that has an error code for each of its rows."""
    if not issubclass(asked, msgspec.Struct):
        return []
    theirs = [field for field in fields_of(asked) if isinstance(field.type, Array)]
    pairs = []
    for ours in fields_of(kind):
        if theirs and isinstance(ours.type, Array) and _has_errors(ours.type.element):
            found = next((field for field in theirs if field.name == ours.name), theirs[0])
            theirs.remove(found)
            pairs.append((found, ours))
    return pairs


def _has_errors(element: Kind | type[msgspec.Struct]) -> bool:
    return isinstance(element, type) and any(
        field.name in ERROR_CODES or (isinstance(field.type, Array) and _has_errors(field.type.element))
        for field in fields_of(element)
    )


def _copied(fields: Sequence[Field], asked: type) -> Iterator[tuple[str, str | None]]:
    """The fields that name the row, each with its source."""
    plain = [
        field
        for field in fields
        if isinstance(field.type, Kind)
        and field.name not in (*ERROR_CODES, "error_message")
        and field.on_error is msgspec.UNSET
    ]
    if not issubclass(asked, msgspec.Struct):
        kind = Kind.STRING if asked is str else Kind.INT32
        yield from [(field.name, None) for field in plain if field.type is kind][:1]
        return
    theirs = {field.name: field for field in fields_of(asked)}
    for at, field in enumerate(plain):
        if field.name in theirs:
            if field.default in _ZEROS:
                yield field.name, field.name
        elif at == 0:
            yield from [(field.name, name) for name, other in theirs.items() if other.type is field.type][:1]


def _echoes(fields: Sequence[Field], asked: type) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The arrays without error codes that repeat an array of the request, with the classes of their elements."""
    if issubclass(asked, msgspec.Struct):
        theirs = [field.name for field in fields_of(asked)]
        for field in fields:
            if isinstance(field.type, Array) and field.default is msgspec.NODEFAULT and field.name in theirs:
                yield field.name, _element(field)


def _element(field: Field) -> type[msgspec.Struct]:
    assert isinstance(field.type, Array)
    assert isinstance(field.type.element, type)
    return field.type.element
