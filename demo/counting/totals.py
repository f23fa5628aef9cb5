"""The totals of the counting demo: flights of each carrier, and the minutes of their departure delays."""

from __future__ import annotations

import csv
import io
import zipfile
from typing import NamedTuple

from demo.flights import source

DEP_DELAY = 6
"""The column of the departure delay in a stored value; column 0 is the row number."""


class Total(NamedTuple):
    """The flights of a carrier, and the sum of their departure delays (negative for early departures)."""

    flights: int = 0
    delay_min: int = 0

    def plus(self, dep_delay: int | None) -> Total:
        return Total(self.flights + 1, self.delay_min + (dep_delay or 0))


def truth(limit: int | None = None) -> dict[str, Total]:
    """Compute the expected totals from the file alone, with the csv module instead of the demo's own parser."""
    totals: dict[str, Total] = {}
    with zipfile.ZipFile(source() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row, record in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))):
            if limit is not None and row >= limit:
                break
            carrier = record["carrier"]
            totals[carrier] = totals.get(carrier, Total()).plus(minutes(record["dep_delay"]))
    return totals


def parse(value: bytes | None) -> tuple[int, int | None]:
    """Return the row number and the departure delay of a stored record; a cancelled flight has no delay."""
    assert value is not None, "each flight has a value"
    fields = value.split(b",")
    return int(fields[0]), minutes(fields[DEP_DELAY].decode())


def minutes(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))
