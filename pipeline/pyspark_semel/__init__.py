"""The Spark format `semel`: `spark.read.format("semel")`, `spark.readStream.format("semel")`,
`df.writeStream.format("semel")`.

Spark finds the package by its name, and the class `DefaultSource` in it. Options and columns are those of Spark's own
Kafka connector.

Every Spark session on a machine imports this file, also one that reads no topic. The import must be fast and must not
fail.
"""

from __future__ import annotations

from pyspark_semel.data_source import DefaultSource, SemelDataSource

__all__ = ["DefaultSource", "SemelDataSource", "prepare"]


def prepare() -> str:
    """Make Spark use this Python, and a Java; call it before the first session. Returns the Java home.

    Without it Spark looks for data sources and runs workers with the `python3` of the PATH. If that is not the
    environment that semel is installed in, Spark reports "Failed to find the data source: semel". Raises
    `pyspark_semel.java.NoJavaError`.
    """
    from pyspark_semel.java import prepare as prepare_java

    return str(prepare_java())
