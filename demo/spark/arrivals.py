"""Sorts the flights by their arrival in the stream: the take-off time, or the scheduled time of a cancelled flight."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import datetime, timedelta
from typing import NamedTuple

from demo.flights import source

PARTITIONS = 4
"""Each partition is a task of each batch, and the machine may have only two cores."""
SETTLED_DAYS = 60
"""The distance of the final clock from the last flight: more than the watermark's delay and a window."""


class Arrival(NamedTuple):
    at: datetime
    row: int
    line: str

    @property
    def partition(self) -> int:
        return self.row % PARTITIONS

    @property
    def value(self) -> bytes:
        return f"{self.row},{self.line}".encode()


def arrivals(limit: int | None = None) -> list[Arrival]:
    """Return the first `limit` flights of the file, or all, in arrival order. The file's months are sorted as text."""
    found = []
    with zipfile.ZipFile(source() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, "utf-8", newline="")
        names = next(lines).rstrip("\r\n").split(",")
        at = [names.index(name) for name in ("year", "month", "day", "hour", "minute", "dep_delay")]
        for row, line in enumerate(lines):
            if limit is not None and row >= limit:
                break
            text = line.rstrip("\r\n")
            fields = text.split(",")
            year, month, day, hour, minute, delay = (int(fields[i]) if fields[i] not in ("", "NA") else 0 for i in at)
            when = datetime(year, month, day, hour, minute) + timedelta(minutes=delay)  # noqa: DTZ001  # wall clock
            found.append(Arrival(when, row, text))
    return sorted(found)


def clock_values(last: datetime) -> list[bytes]:
    """Return a value per partition that is no flight: it only advances the watermark, so that all windows close."""
    late = last + timedelta(days=SETTLED_DAYS)
    before, after = f"{late.year},{late.month},{late.day}", f"{late.hour},{late.minute}"
    return [f"{-1 - n},{before},,,,,,,,,,,,,,{after},".encode() for n in range(PARTITIONS)]


class Late(NamedTuple):
    """The flights to an airport, in total or on one day: scheduled flights, arrived flights, and the sum of their
    delays.
    """

    flights: int = 0
    arrived: int = 0
    late_min: int = 0

    def plus(self, other: Late) -> Late:
        return Late(self.flights + other.flights, self.arrived + other.arrived, self.late_min + other.late_min)


def truth(limit: int | None = None) -> dict[tuple[str, str], Late]:
    """Compute (airport code, day) -> delays from the file alone, with the csv module."""
    found: dict[tuple[str, str], Late] = {}
    with zipfile.ZipFile(source() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row, record in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))):
            if limit is not None and row >= limit:
                break
            day = f"{record['year']}-{int(record['month']):02}-{int(record['day']):02}"
            delay = record["arr_delay"]
            one = Late(1, 0, 0) if delay in ("", "NA") else Late(1, 1, int(float(delay)))
            found[record["dest"], day] = found.get((record["dest"], day), Late()).plus(one)
    return found
