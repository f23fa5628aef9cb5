"""EDGE: runs the tests of the console of this repository against the brokers of the run."""

from __future__ import annotations

from tools.strangers import own_tests, script

script.run(lambda: own_tests.run(["tests/console"], needs=["starlette", "uvicorn"]))
