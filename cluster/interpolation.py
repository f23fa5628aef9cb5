"""Variables in the values of a compose file, such as `${NAME:-default}`, with the rules of Compose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPERATOR = re.compile(r":?[-?+]")


class InterpolationError(ValueError):
    """A variable that must be set is not, or what follows a `$` is no variable."""


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """Every string inside `value`, which YAML gave; keys of mappings stay as they are. Raises InterpolationError."""
    if isinstance(value, str):
        return filled(value, variables)
    if isinstance(value, list):
        return [interpolate(each, variables) for each in value]
    if isinstance(value, dict):
        return {key: interpolate(each, variables) for key, each in value.items()}
    return value


def filled(text: str, variables: Mapping[str, str]) -> str:
    """One string. `$$` is a dollar; an unset variable without a default is empty, as in Compose."""
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        parts.append(text[at:dollar])
        value, at = _variable(text, dollar, variables)
        parts.append(value)
    return "".join([*parts, text[at:]])


def _variable(text: str, dollar: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """The value of what begins at this `$`, and where the text goes on."""
    after = dollar + 1
    if text.startswith("$", after):
        return "$", after + 1
    braced = text.startswith("{", after)
    name = NAME.match(text, after + braced)
    if name is None:
        raise InterpolationError(f"{text!r}: no variable after the $ at {dollar}; a plain dollar is written $$")
    if not braced:
        return variables.get(name.group(), ""), name.end()
    end = _closing(text, after)
    return _expression(name.group(), text[name.end() : end], text, variables), end + 1


def _closing(text: str, brace: int) -> int:
    """Where the brace that opens at `brace` closes; defaults may hold variables of their own."""
    depth = 0
    for i in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise InterpolationError(f"{text!r}: the brace at {brace} is not closed")


def _expression(name: str, rest: str, text: str, variables: Mapping[str, str]) -> str:
    if not rest:
        return variables.get(name, "")
    operator = OPERATOR.match(rest)
    if operator is None:
        raise InterpolationError(f"{text!r}: {rest!r} after {name} is none of :- - :? ? :+ +")
    word = rest[operator.end() :]
    given = variables.get(name)
    is_set = bool(given) if operator.group().startswith(":") else given is not None
    match operator.group()[-1]:
        case "-":
            return given or "" if is_set else filled(word, variables)
        case "+":
            return filled(word, variables) if is_set else ""
        case _:
            if not is_set:
                raise InterpolationError(f"{name} must be set: {filled(word, variables) or text}")
            return given or ""


def dotenv(text: str) -> dict[str, str]:
    """The `.env` beside a compose file: NAME=value lines, comments, and values in quotes."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ")
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not NAME.fullmatch(name.strip()):
            raise InterpolationError(f".env, line {number}: {line!r} is not NAME=value")
        value = value.strip()
        if value[:1] in ("'", '"') and value[-1:] == value[0] and len(value) > 1:
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name.strip()] = value
    return found
