"""The transformations of the flights on static tables: names, unknown airports, cancelled flights, sums by day."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark_semel.flights import airlines, airports, delays, enriched, parsed
from pyspark_semel.flights.lookups import names
from pyspark_semel.pipeline.definition_file import load

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo.spark.arrivals import PARTITIONS, Late, arrivals, clock_values, truth  # noqa: E402
from demo.spark.report import row_of_json, summed  # noqa: E402

ROWS = 3_000


@pytest.fixture(scope="module")
def flights(spark: SparkSession) -> DataFrame:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    some = arrivals(ROWS)
    values = [(bytearray(each.value),) for each in some]
    values += [(bytearray(value),) for value in clock_values(max(each.at for each in some))]
    return parsed(spark, spark.createDataFrame(values, "value BINARY")).cache()


def test_each_flight_is_enriched_once_and_clock_lines_are_skipped(spark: SparkSession, flights: DataFrame) -> None:
    found = enriched(spark, flights, airlines(spark), airports(spark)).collect()
    values = {row_of_json(bytes(row["value"])): json.loads(row["value"]) for row in found}
    assert len(found) == len(values) == ROWS
    assert sorted(values) == list(range(ROWS))
    first = next(each for each in arrivals(1))
    assert first.line.startswith("2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH")
    assert values[0] == {
        "row": 0,
        "code": "UA",
        "airline": "United Air Lines Inc.",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "origin_name": "Newark Liberty Intl",
        "dest": "IAH",
        "dest_name": "George Bush Intercontinental",
        "time": "2013-01-01T05:15:00.000Z",
        "dep_delay": 2,
        "arr_delay": 11,
        "distance": 1400,
    }
    assert bytes(next(row["key"] for row in found if row_of_json(bytes(row["value"])) == 0)) == b"UA"
    unnamed = {each["dest"] for each in values.values()} - set(names("airports.csv", "faa"))
    assert unnamed
    assert all(each["dest_name"] == each["dest"] for each in values.values() if each["dest"] in unnamed)
    assert any(each["airline"] is None for each in values.values()) is False


def test_delays_are_those_of_the_file_by_airport_and_day(spark: SparkSession, flights: DataFrame) -> None:
    rows = delays(spark, flights, airports(spark)).collect()
    found = summed(bytes(row["value"]) for row in rows if row["key"] is not None)
    assert found.windows == truth(ROWS)
    assert found.repeated == 0
    assert any(late.arrived < late.flights for late in found.windows.values())  # some were cancelled
    assert len([row for row in rows if row["key"] is None]) == 1  # the clocks' own window, which never closes


def test_flights_arrive_in_order_and_late_ones_are_within_the_watermark() -> None:
    found = arrivals()
    assert len(found) == 336_776
    assert all(a.at <= b.at for a, b in pairwise(found))
    assert sorted(each.row for each in found) == list(range(len(found)))
    assert {each.partition for each in found} == set(range(PARTITIONS))


def test_a_repeated_window_is_detected() -> None:
    value = b'{"dest":"IAH","airport":"x","day":"2013-01-01","flights":2,"arrived":1,"late_min":-3}'
    assert summed([value]).windows == {("IAH", "2013-01-01"): Late(2, 1, -3)}
    assert summed([value, value]).repeated == 1


def test_the_pipeline_file_is_valid(spark: SparkSession) -> None:
    found = load(ROOT / "pipeline" / "flights.toml", {})
    assert list(found.queries) == ["enriched", "delays"]
    assert len({query.options["semel.sink.id"] for query in found.queries.values()}) == 2
