"""PURE: the definition of a pipeline: its sources, views and queries, and the folder of their checkpoints.

    name = "flights"
    checkpoint = "/var/lib/flights"

    [sources.flights]
    format = "semel"
    options = { "kafka.bootstrap.servers" = "${BOOTSTRAP}", subscribe = "flights", startingOffsets = "earliest" }

    [queries.enriched]
    sql = "SELECT key, upper(value) AS value FROM flights"
    format = "semel"
    options = { "kafka.bootstrap.servers" = "${BOOTSTRAP}", topic = "flights-enriched" }

Each problem is reported with its key and the value to write there. docs/pipelines.md lists all keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from semel_protocol.errors import PortableError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INTERVAL = re.compile(r"\d+ (milliseconds?|seconds?|minutes?|hours?|days?)")
AVAILABLE_NOW = "available now"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
Text = Annotated[str, msgspec.Meta(min_length=1)]
Scalar = str | int | float | bool
Kind = TypeVar("Kind", bound=msgspec.Struct)


class DefinitionError(PortableError, ValueError):
    """The problems of a definition, one line each: the key, and the value to write there."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Watermark(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Rows that are more than `delay` behind the latest `column` are too late: their windows may already be closed."""

    column: Text
    delay: Text


class Source(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A source of rows: `spark.readStream`, or `spark.read` if it is not streaming."""

    format: Text
    streaming: bool = True
    options: dict[str, Scalar] = {}
    schema: str | None = None
    path: str | None = None
    watermark: Watermark | None = None


class View(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table derived from others, by SQL or by a function `module:name` that is called with (spark, *inputs,
    **arguments).
    """

    sql: str | None = None
    python: str | None = None
    inputs: list[str] = []
    arguments: dict[str, Scalar] = {}
    watermark: Watermark | None = None


class Query(View, frozen=True, kw_only=True):
    """A view that a streaming query of this name writes, batch by batch."""

    format: Text
    options: dict[str, Scalar] = {}
    path: str | None = None
    mode: Literal["append", "update", "complete"] = "append"
    trigger: str = "0 seconds"
    """"0 seconds": one batch after the other; "10 seconds": an interval; "available now": all available rows, then the
    end.
    """


class Definition(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A whole pipeline. `functions`: functions of a Python file, by the name that `python` refers to."""

    name: Text
    checkpoint: Text
    """A folder; each query has a folder of its own in it, with the name of the query."""
    queries: dict[str, Query]
    sources: dict[str, Source] = {}
    views: dict[str, View] = {}
    master: Text = "local[*]"
    spark: dict[str, Scalar] = {}
    functions: dict[str, Callable[..., Any]] = {}


NO_QUERIES = "queries: the pipeline writes nothing; add a table such as [queries.some_name] with sql and format"
SECTIONS: dict[str, type[Any]] = {"sources": Source, "views": View, "queries": Query}


def parse(given: Mapping[str, Any], environment: Mapping[str, str]) -> Definition:
    """Convert the content of a file to a definition. `${NAME}` and `${NAME:-otherwise}` in texts are variables.

    Raises DefinitionError with all problems.
    """
    problems: list[str] = []
    filled = _filled(given, "", environment, problems)
    made: dict[str, dict[str, Any]] = {}
    for section, kind in SECTIONS.items():
        entries = filled.pop(section, {})
        if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
            problems.append(f"{section}: write tables such as [{section}.some_name]")
            continue
        made[section] = {name: _converted(each, kind, f"{section}.{name}", problems) for name, each in entries.items()}
    whole = _converted({**filled, "queries": {}}, Definition, "", problems)
    if not made.get("queries", True):
        problems.append(NO_QUERIES)
    if problems or whole is None:
        raise DefinitionError(problems)
    definition = msgspec.structs.replace(whole, **made)
    check(definition)
    return definition


def check(definition: Definition) -> None:
    """Check the rules that the types do not express. Raises DefinitionError."""
    problems = list(_problems(definition))
    if problems:
        raise DefinitionError(problems)


def _problems(definition: Definition) -> Iterator[str]:
    if not definition.queries:
        yield NO_QUERIES
    for section in SECTIONS:
        for name in getattr(definition, section):
            if not NAME.fullmatch(name):
                yield f"{section}.{name}: write only letters, digits and _, so that SQL can name it"
    names = [*definition.sources, *definition.views, *definition.queries]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name}: several sources, views or queries have this name; rename all but one of them"
    for at, view in [
        *((f"views.{name}", each) for name, each in definition.views.items()),
        *((f"queries.{name}", each) for name, each in definition.queries.items()),
    ]:
        yield from _problems_of(at, view, definition)


def _problems_of(at: str, view: View, definition: Definition) -> Iterator[str]:
    if (view.sql is None) == (view.python is None):
        yield f'{at}: write either sql = "SELECT …" or python = "module:function"'
    if view.sql is not None and (view.inputs or view.arguments):
        yield f"{at}.inputs: SQL names its tables itself; remove inputs and arguments, which are for python"
    if view.python is not None and ":" not in view.python and view.python not in definition.functions:
        yield f'{at}.python: {view.python!r}: write "module:function"'
    for name in view.inputs:
        known = [*definition.sources, *definition.views]
        if name not in known:
            yield f"{at}.inputs: there is no {name!r}{instead(name, known)}"
    if isinstance(view, Query) and view.trigger != AVAILABLE_NOW and not INTERVAL.fullmatch(view.trigger):
        yield f'{at}.trigger: {view.trigger!r}: write "10 seconds", "0 seconds" (without a pause) or "available now"'


def _filled(value: Any, at: str, environment: Mapping[str, str], problems: list[str]) -> Any:
    """Replace the variables in a value, at any depth."""
    if isinstance(value, Mapping):
        return {key: _filled(each, f"{at}.{key}".strip("."), environment, problems) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, at, environment, problems) for each in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        name, otherwise = found[1], found[2]
        if name not in environment and otherwise is None:
            problems.append(f"{at}: the variable {name} is not set; set it, or write ${{{name}:-some value}}")
        return environment.get(name, otherwise or "")

    return VARIABLE.sub(fill, value)


def _converted(given: Mapping[str, Any], kind: type[Kind], at: str, problems: list[str]) -> Kind | None:
    """Convert to that type. Returns None after adding the problems, each with its whole key."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    before = len(problems)
    for key in given:
        if key not in fields or key == "functions":
            known = [name for name in fields if name != "functions"] + (list(SECTIONS) if not at else [])
            problems.append(f"{f'{at}.{key}'.strip('.')}: unknown{instead(key, known)}")
    for name, field in fields.items():
        if field.required and name not in given:
            problems.append(f"{f'{at}.{name}'.strip('.')}: missing; write {WRITE.get(name, 'it')}")
        elif name in given:
            try:
                msgspec.convert(given[name], field.type)
            except msgspec.ValidationError as e:
                problems.append(f"{f'{at}.{name}'.strip('.')}: {_plain(str(e))}")
    return None if len(problems) > before else msgspec.convert(given, kind)


WRITE = {
    "name": 'the pipeline\'s, such as name = "flights"',
    "checkpoint": 'a folder that outlives restarts, such as checkpoint = "/var/lib/flights"',
    "format": 'format = "semel", or one of Spark\'s such as "parquet"',
    "column": 'the column of event times, such as column = "time"',
    "delay": 'how late rows may be, such as delay = "10 minutes"',
}


def _plain(message: str) -> str:
    """Return msgspec's message with the path inside the value in front."""
    what, _, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {what}" if path else what


def instead(name: str, known: Collection[str]) -> str:
    """Suggest the nearest known name, or list all of them."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known)) or 'none'}"
