"""semel for Spark: `spark.read.format("semel")`, `spark.readStream.format("semel")`, `df.writeStream.format("semel")`.

Spark finds the package by its name, and in it `DefaultSource`. Options and columns are those of Spark's own Kafka
connector.

Every Spark session on a machine imports this file, whether it reads topics or not: nothing here may be slow or fail.
"""

from __future__ import annotations

from pyspark_semel.data_source import DefaultSource, SemelDataSource

__all__ = ["DefaultSource", "SemelDataSource"]
