"""EDGE: the tables of docs/compatibility.md: docs/data/compatibility.toml, and results of `make strangers`."""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from tools.strangers.record import decoded, table
from tools.website import ROOT

TABLES = ROOT / "docs/data/compatibility.toml"
RESULTS = ROOT / "tools/strangers/results"
Kind = Literal["difference", "client", "run"]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file. `about`: a paragraph above it."""

    kind: Kind
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    about: str = ""


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    table: tuple[Table, ...]


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables of the file. Raises msgspec.ValidationError for a field that is missing or unknown."""
    return msgspec.toml.decode(TABLES.read_bytes(), type=Tables).table


def differences() -> str:
    """What differs from Kafka."""
    return _of_kind("difference")


def clients() -> str:
    """Limits of clients, whatever the broker: one table, below a heading of the page."""
    return _of_kind("client").partition("\n\n")[2]


def runs() -> str:
    """What was run by hand."""
    return _of_kind("run")


def strangers() -> str:
    """The stored results of `make strangers`."""
    return table(decoded(path.read_bytes()) for path in sorted(RESULTS.glob("*.json")))


def _of_kind(kind: Kind) -> str:
    return "\n".join(_shown(each) for each in tables() if each.kind == kind)


def _shown(each: Table) -> str:
    rows = [each.columns, ("---",) * len(each.columns), *each.rows]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"### {each.title}", "", *([each.about, ""] if each.about else []), *lines, ""])
