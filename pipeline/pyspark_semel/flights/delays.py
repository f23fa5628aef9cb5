"""Sums arrival delays by airport and day, in event-time windows that close when the watermark has passed them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

WINDOW = "1 day"


def delays(spark: SparkSession, flights: DataFrame, airports: DataFrame) -> DataFrame:
    """Return key (the airport's code) and value (JSON) for each airport and day: scheduled flights, arrived flights,
    and the sum of their delays in minutes.

    In append mode each window appears once, when it is closed. A topic with two values for one window is wrong.
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
