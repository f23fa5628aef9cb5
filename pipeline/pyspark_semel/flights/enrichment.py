"""Parses flights into columns, and adds the names of the airline and the airports."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

FIELDS = (
    "row LONG, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT, hour INT, minute INT, time_hour STRING"
)
"""The columns of a value: the row number, then the columns of the file."""


def parsed(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Return the columns of the file and `time`, the scheduled departure in local time.

    A line without a carrier is no flight: it only advances the watermark at the end of a stream.
    """
    line = F.from_csv(F.col("value").cast("string"), FIELDS, {"nullValue": "NA"})
    columns = flights.select(line.alias("flight_line")).select("flight_line.*")
    return columns.withColumn("time", F.expr("make_timestamp(year, month, day, hour, minute, 0)"))


def enriched(spark: SparkSession, flights: DataFrame, airlines: DataFrame, airports: DataFrame) -> DataFrame:
    """Return key (the carrier) and value (JSON), one row per flight. An airport without a name keeps its code."""
    flights = flights.where(F.col("carrier").isNotNull()).withColumnRenamed("carrier", "code")
    named = flights.join(F.broadcast(airlines), flights["code"] == airlines["carrier"], "left")
    for end in ("origin", "dest"):
        column = f"{end}_name"
        names = F.broadcast(airports.select(F.col("faa").alias(f"{end}_code"), F.col("airport").alias(column)))
        named = named.join(names, F.col(end) == F.col(f"{end}_code"), "left")
        named = named.withColumn(column, F.coalesce(column, end))
    fields = ["row", "code", "airline", "flight", "tailnum", "origin", "origin_name", "dest", "dest_name"]
    fields += ["time", "dep_delay", "arr_delay", "distance"]
    value = F.to_json(F.struct(*fields))
    return named.select(F.col("code").cast("binary").alias("key"), value.cast("binary").alias("value"))
