"""EDGE: starts a quiet Spark session for a command, and stops it when the command ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from semel_protocol import extras

from pyspark_semel import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Settings of a command on one machine; a pipeline's own `spark` settings override them."""


class NoSparkError(RuntimeError):
    """Spark cannot be started; the message says which package or variable is missing."""


@contextmanager
def session(name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a new session, and stop it on leaving. Raises NoSparkError."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as e:
        raise NoSparkError(extras.missing("Spark", str(e.name), "spark")) from e
    try:
        java.prepare()
    except java.NoJavaError as e:
        raise NoSparkError(str(e)) from e
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
