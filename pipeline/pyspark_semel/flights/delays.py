"""How late flights arrive, by airport and day: a window of event time that closes when the watermark has passed it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)

WINDOW = "1 day"


def delays(spark: SparkSession, flights: DataFrame, airports: DataFrame) -> DataFrame:
    """key (the airport's code) and value (JSON): of each airport and day how many flights were to go there, how many
    arrived, and by how many minutes late all of those together.

    In append mode each window comes once, closed: a topic in which a window stands twice, or with two values, is wrong.
    """
    by_day = flights.groupBy(F.window("time", WINDOW).alias("window"), "dest").agg(
        F.count("carrier").alias("flights"),
        F.count("arr_delay").alias("arrived"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("late_min"),
    )
    named = by_day.join(F.broadcast(airports), F.col("dest") == F.col("faa"), "left")
    day = F.date_format("window.start", "yyyy-MM-dd").alias("day")
    name = F.coalesce("airport", "dest").alias("airport")
    value = F.to_json(F.struct("dest", name, day, "flights", "arrived", "late_min"))
    return named.select(F.col("dest").cast("binary").alias("key"), value.cast("binary").alias("value"))
