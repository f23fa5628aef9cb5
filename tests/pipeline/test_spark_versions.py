"""The error for an older Spark names the missing feature. The tests hide the modules that it lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import pyspark
import pyspark.sql.datasource

pyspark.__version__ = {version!r}
sys.modules["pyspark.sql.streaming.datasource"] = None
if {version!r} < "4.1":
    del pyspark.sql.datasource.DataSourceArrowWriter

from pyspark_semel import DefaultSource

source = DefaultSource({{"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}})
schema = source.schema()
source.reader(schema)
print("batch reads work")
{call}
"""


@pytest.mark.parametrize(
    ("version", "call", "says"),
    [
        ("4.1.4", "source.streamReader(schema)", "streaming reads with the format semel need Spark 4.2 or newer"),
        ("4.0.1", "source.writer(schema, False)", "batch writes with the format semel need Spark 4.1 or newer"),
        (
            "4.0.1",
            "source.streamWriter(schema, False)",
            "streaming writes with the format semel need Spark 4.1 or newer",
        ),
    ],
)
def test_an_older_spark_is_named(version: str, call: str, says: str) -> None:
    program = PROGRAM.format(version=version, call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "batch reads work\n", done.stderr
    last = done.stderr.splitlines()[-1]
    assert says in last
    assert f"this is Spark {version}" in last
