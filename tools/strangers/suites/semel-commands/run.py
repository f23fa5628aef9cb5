"""EDGE: runs the tests of the commands of this repository against the brokers of the run."""

from __future__ import annotations

from tools.strangers import own_tests, script

script.run(lambda: own_tests.run(["tests/client/cli"]))
