"""EDGE: runs the tests of Spark's source and sink of this repository against the brokers of the run."""

from __future__ import annotations

from tools.strangers import own_tests, script

script.run(lambda: own_tests.run(["tests/pipeline/source", "tests/pipeline/sink"], needs=["pyspark"]))
