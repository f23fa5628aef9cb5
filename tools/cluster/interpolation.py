"""Variables in the values of a compose file, such as `${NAME:-default}`, with the rules of Compose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPERATOR = re.compile(r":?[-?+]")


class InterpolationError(ValueError):
    """A required variable is not set, or the text after a `$` is not a variable."""


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """Fill in the variables of all strings in a YAML value, except keys. Raises InterpolationError."""
    if isinstance(value, str):
        return filled(value, variables)
    if isinstance(value, list):
        return [interpolate(each, variables) for each in value]
    if isinstance(value, dict):
        return {key: interpolate(each, variables) for key, each in value.items()}
    return value


def filled(text: str, variables: Mapping[str, str]) -> str:
    """One string with its variables filled in. `$$` is a dollar. An unset variable without a default is empty."""
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        parts.append(text[at:dollar])
        value, at = _variable(text, dollar, variables)
        parts.append(value)
    return "".join([*parts, text[at:]])


def _variable(text: str, dollar: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """The value of the variable that begins at this `$`, and the position after it."""
    after = dollar + 1
    if text.startswith("$", after):
        return "$", after + 1
    braced = text.startswith("{", after)
    name = NAME.match(text, after + braced)
    if name is None:
        raise InterpolationError(
            f"{text!r}: there is no variable after the $ at position {dollar}; for a plain dollar write $$"
        )
    if not braced:
        return variables.get(name.group(), ""), name.end()
    end = _closing(text, after)
    return _expression(name.group(), text[name.end() : end], text, variables), end + 1


def _closing(text: str, brace: int) -> int:
    """The position of the brace that closes the one at `brace`. Defaults may hold variables, so braces may nest."""
    depth = 0
    for i in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise InterpolationError(f"{text!r}: the brace at position {brace} is not closed; add a }}")


def _expression(name: str, rest: str, text: str, variables: Mapping[str, str]) -> str:
    if not rest:
        return variables.get(name, "")
    operator = OPERATOR.match(rest)
    if operator is None:
        raise InterpolationError(
            f"{text!r}: {rest!r} after {name} is not an operator with a word; the operators are :- - :? ? :+ +"
        )
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
    """Parse the `.env` beside a compose file: NAME=value lines, comments, values in quotes."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ")
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not NAME.fullmatch(name.strip()):
            raise InterpolationError(f".env, line {number}: {line!r} is not NAME=value, nor a comment with #")
        value = value.strip()
        if value[:1] in ("'", '"') and value[-1:] == value[0] and len(value) > 1:
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name.strip()] = value
    return found
