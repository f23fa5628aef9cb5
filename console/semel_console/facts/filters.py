"""PURE: conditions on a record: a text, its key, a header, and a path in its JSON value.

A path condition is `PATH`, or `PATH OPERATOR LITERAL`; several are joined by `and`:

    $.order.id == 4345
    $.lines[*].price > 10 and $.status != "open"

PATH is the part of RFC 9535 without filters and slices: `$`, `.name`, `['a name']`, `[0]`, `[*]`. OPERATOR is ==, !=,
<, <=, >, >= or `contains` (of texts). LITERAL is a number, a text in quotes, true, false or null. A condition holds
when one of the values at the path satisfies it; `PATH` alone holds when there is a value. Numbers are compared exactly.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
from semel_protocol.records import Record

from semel_console.query import QueryParameters

EXAMPLE = "$.order.id == 4345"
TEXT_MAX = 4_096
CONDITIONS_MAX = 16
ANY = "*"
STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*|\*)|\[(?:(?P<index>-?\d{1,9})|(?P<any>\*)|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))\]"""
)
OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>|contains\b)\s*")
LITERAL = re.compile(r"""-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true\b|false\b|null\b|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
AND = re.compile(r"\s*(?:and\b|&&)\s*")
SPACE = re.compile(r"\s*")
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NOT_JSON = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)
"""Errors of a value that is not JSON, is nested too deep, or has a number that cannot be held."""
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class PathCondition(msgspec.Struct, frozen=True):
    """One condition. steps: names, indexes, and None for each element. sign: the operator; empty for existence."""

    steps: tuple[str | int | None, ...]
    sign: str = ""
    literal: Any = None

    def holds(self, value: Any) -> bool:
        return any(self._satisfied_by(found) for found in _selected(value, self.steps))

    def _satisfied_by(self, found: Any) -> bool:
        if not self.sign:
            return True
        if self.sign == "contains":
            return isinstance(found, str) and self.literal in found
        is_same_kind = _kind(found) == _kind(self.literal)
        if self.sign in ("==", "!="):
            return (is_same_kind and found == self.literal) is (self.sign == "==")
        return is_same_kind and ORDERS[self.sign](found, self.literal)


def _kind(value: Any) -> str:
    """Values of different kinds are not equal, and have no order: true is not 1."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    return "number" if isinstance(value, int | Decimal) else type(value).__name__


def _selected(value: Any, steps: tuple[str | int | None, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for each in inner:
            yield from _selected(each, rest)
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _selected(value[step], rest)
    elif isinstance(value, list) and -len(value) <= step < len(value):
        yield from _selected(value[step], rest)


def path_conditions(text: str) -> tuple[PathCondition, ...]:
    """The conditions of a text. Raises ValueError with the place of the mistake."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"the JSON path has {len(text)} characters: the most are {TEXT_MAX}")
    found: list[PathCondition] = []
    at = 0
    while True:
        condition, at = _condition(text, at)
        found.append(condition)
        if at == len(text):
            return tuple(found)
        joined = AND.match(text, at)
        if joined is None:
            raise _wrong(text, at, "an operator (==, !=, <, <=, >, >=, contains), `and`, or the end")
        if len(found) == CONDITIONS_MAX:
            raise ValueError(f"the JSON path has more than {CONDITIONS_MAX} conditions")
        at = joined.end()


def _condition(text: str, at: int) -> tuple[PathCondition, int]:
    at = _after_space(text, at)
    if not text.startswith("$", at):
        raise _wrong(text, at, "a path that begins with $")
    at += 1
    steps: list[str | int | None] = []
    while (step := STEP.match(text, at)) is not None:
        steps.append(_step(step))
        at = step.end()
    if text[at : at + 1] in (".", "["):
        raise _wrong(text, at, "a step: .name, ['a name'], [0] or [*]")
    sign = OPERATOR.match(text, at)
    if sign is None:
        return PathCondition(tuple(steps)), _after_space(text, at)
    literal = LITERAL.match(text, sign.end())
    if literal is None:
        raise _wrong(text, sign.end(), 'a number, a text in quotes such as "paid", true, false or null')
    value = _literal(text, literal)
    if sign[1] == "contains" and not isinstance(value, str):
        raise _wrong(text, sign.end(), "a text in quotes after `contains`")
    if sign[1] in ORDERS and (isinstance(value, bool) or value is None):
        raise _wrong(text, sign.end(), f"a number or a text in quotes after {sign[1]}")
    return PathCondition(tuple(steps), sign[1], value), _after_space(text, literal.end())


def _step(step: re.Match[str]) -> str | int | None:
    if step["index"] is not None:
        return int(step["index"])
    if step["any"] is not None or step["name"] == ANY:
        return None
    return step["name"] if step["name"] is not None else _unquoted(step["quoted"])


def _literal(text: str, found: re.Match[str]) -> Any:
    try:
        return _unquoted(found[0]) if found[0][0] in "'\"" else _decode(found[0])
    except NOT_JSON:
        raise _wrong(text, found.start(), "a number or a text as JSON has them") from None


def _unquoted(text: str) -> str:
    """The text of a JSON string, which may have single quotes."""
    if text[0] == "'":
        text = '"' + re.sub(r'\\.|"', lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), text[1:-1]) + '"'
    return str(msgspec.json.decode(text))


def _after_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    assert found is not None, "the pattern matches the empty text"
    return found.end()


def _wrong(text: str, at: int, expected: str) -> ValueError:
    shown = f"{text[at : at + 20]!r}" if at < len(text) else "its end"
    return ValueError(f"the JSON path is wrong at {shown}, character {at + 1}: expected {expected}. Example: {EXAMPLE}")


class RecordFilter(msgspec.Struct, frozen=True):
    """All conditions must hold.

    text: a part of key, value or headers. key: the whole key. header: the name of one, with its value if that is not
    None. path: on the value, as JSON.
    """

    text: bytes | None = None
    key: bytes | None = None
    header: tuple[str, bytes | None] | None = None
    path: tuple[PathCondition, ...] = ()

    def matches_bytes(self, record: Record) -> bool:
        """Whether all conditions but the path hold."""
        if self.key is not None and record.key != self.key:
            return False
        if self.header is not None and not any(self._is_header(*each) for each in record.headers):
            return False
        return self.text is None or any(self.text in part for part in _parts(record))

    def _is_header(self, name: str, value: bytes | None) -> bool:
        assert self.header is not None
        wanted, wanted_value = self.header
        return name == wanted and (wanted_value is None or value == wanted_value)

    def matches_json(self, value: bytes | str | None) -> bool:
        """Whether the path's conditions hold. A value that is no JSON satisfies none."""
        if not self.path:
            return True
        if value is None:
            return False
        try:
            found = _decode(value)
        except NOT_JSON:
            return False
        return all(each.holds(found) for each in self.path)


def filter_of(query: QueryParameters) -> RecordFilter | None:
    """The filter of the parameters `contains`, `key`, `header` (NAME or NAME=VALUE) and `path`; None without one.

    Raises ValueError for a path that is wrong.
    """
    text, key, header, path = (query.text(name, "\0") for name in ("contains", "key", "header", "path"))
    name, sign, value = header.partition("=")
    if sign and not name:
        raise ValueError("the header filter begins with =: write NAME or NAME=VALUE, such as trace=7f3a")
    made = RecordFilter(
        None if text == "\0" else text.encode(),
        None if key == "\0" else key.encode(),
        None if header == "\0" else (name, value.encode() if sign else None),
        () if path == "\0" else path_conditions(path),
    )
    return None if made == RecordFilter() else made


def _parts(record: Record) -> Iterator[bytes]:
    yield record.key or b""
    yield record.value or b""
    for name, value in record.headers:
        yield name.encode(errors="surrogateescape")
        yield value or b""
