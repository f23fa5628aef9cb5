"""Creates the tables of a definition in Spark: a temporary view per source and view, and a writer for each query."""

from __future__ import annotations

import importlib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pyspark_semel.options import OptionError
from pyspark_semel.pipeline.definition import (
    AVAILABLE_NOW,
    Definition,
    DefinitionError,
    Query,
    Scalar,
    Source,
    View,
    Watermark,
)
from pyspark_semel.sink.options import TOPIC, sink_options
from pyspark_semel.sink.schema import SchemaError, sink_schema
from pyspark_semel.source.options import batch_options, stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


OWN_FORMAT = "semel"
JAVA_CLASS = re.compile(r"^[\w.$]+(Exception|Error): ")


def writers(spark: SparkSession, definition: Definition) -> dict[str, DataStreamWriter]:
    """Return a writer for each query by name, ready to start; no query runs yet.

    Raises DefinitionError for errors that only Spark finds: unknown formats, columns and tables, a function that fails.
    """
    check_options(definition)
    tables: dict[str, DataFrame] = {}
    for name, source in definition.sources.items():
        with _problems_at(f"sources.{name}"):
            tables[name] = _read(spark, source)
        tables[name].createOrReplaceTempView(name)
    for name, view in definition.views.items():
        with _problems_at(f"views.{name}"):
            tables[name] = _table_of(spark, definition, view, tables)
        tables[name].createOrReplaceTempView(name)
    found = {}
    for name, query in definition.queries.items():
        with _problems_at(f"queries.{name}"):
            frame = _table_of(spark, definition, query, tables)
        if not frame.isStreaming:
            raise DefinitionError(
                [f"queries.{name}: no input is a streaming source; remove streaming = false from one of its sources"]
            )
        found[name] = _writer(definition, name, query, frame)
    return found


def check_options(definition: Definition) -> None:
    """Check the options of the format "semel"; Spark itself checks them only in another process. Raises
    DefinitionError.
    """
    problems = []
    for name, source in definition.sources.items():
        if source.format == OWN_FORMAT:
            check = stream_options if source.streaming else batch_options
            problems += _option_problems(f"sources.{name}.options", partial(check, _texts(source.options)))
    for name, query in definition.queries.items():
        if query.format == OWN_FORMAT:
            check_sink = partial(sink_options, _texts(query.options), streaming=True)
            problems += _option_problems(f"queries.{name}.options", check_sink)
    if problems:
        raise DefinitionError(problems)


def _option_problems(at: str, check: Callable[[], object]) -> list[str]:
    try:
        check()
    except OptionError as e:
        return [f"{at}: {e}"]
    return []


def _texts(options: Mapping[str, Scalar]) -> dict[str, str]:
    return {key: _text(value) for key, value in options.items()}


def _read(spark: SparkSession, source: Source) -> DataFrame:
    reader: Any = (spark.readStream if source.streaming else spark.read).format(source.format)
    reader = reader.options(**_texts(source.options))
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return _with_watermark(reader.load() if source.path is None else reader.load(source.path), source.watermark)


def _table_of(spark: SparkSession, definition: Definition, view: View, tables: Mapping[str, DataFrame]) -> DataFrame:
    if view.sql is not None:
        return _with_watermark(spark.sql(view.sql), view.watermark)
    assert view.python is not None
    function = definition.functions.get(view.python) or _function(view.python)
    return _with_watermark(function(spark, *(tables[name] for name in view.inputs), **view.arguments), view.watermark)


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _function(name: str) -> Callable[..., DataFrame]:
    module, _, attribute = name.partition(":")
    found: Callable[..., DataFrame] = getattr(importlib.import_module(module), attribute)
    return found


def _writer(definition: Definition, name: str, query: Query, frame: DataFrame) -> DataStreamWriter:
    options = _texts(query.options)
    if query.format == OWN_FORMAT:
        try:
            sink_schema(frame.schema, options.get(TOPIC))
        except SchemaError as e:
            raise DefinitionError([f"queries.{name}: {e}"]) from e
    options["checkpointLocation"] = posixpath.join(definition.checkpoint, name)
    if query.path is not None:
        options["path"] = query.path
    writer = frame.writeStream.queryName(name).format(query.format).outputMode(query.mode).options(**options)
    if query.trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=query.trigger)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _problems_at(at: str) -> Iterator[None]:
    """Convert errors of Spark and of Python functions to a DefinitionError for that key."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        raise DefinitionError([f"{at}: {short(e)}"]) from e
    except (ImportError, AttributeError) as e:
        raise DefinitionError([f"{at}.python: {e}"]) from e


def short(error: BaseException) -> str:
    """Return the message of an error without the Java and Python stack traces; of a Python failure, its last line."""
    told = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line and not line.startswith(("at ", "Traceback", "Caused by"))]
    return JAVA_CLASS.sub("", causes[-1] if causes else (lines[0] if lines else type(error).__name__))
