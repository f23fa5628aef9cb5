"""EDGE: runs aiokafka's own tests of its public classes on semel's client, from a checkout of its tag."""

from __future__ import annotations

import shutil

from tools.strangers import pip, script
from tools.strangers.runner import SUITES
from tools.strangers.stand_in import client

PACKAGES = [
    "pytest==9.0.2",
    "pytest-asyncio==1.3.0",
    "pytest-mock==3.15.1",
    "docker==7.1.0",
    "async-timeout==5.0.1",
]
IMAGE = "none:2.13_4.1.1"
"""The suite reads the broker's version from the name of its image."""
TESTS = [
    "tests/coordinator/test_assignors.py",
    "tests/test_admin.py",
    "tests/test_consumer.py",
    "tests/test_helpers.py",
    "tests/test_partitioner.py",
    "tests/test_pep492.py",
    "tests/test_producer.py",
    "tests/test_sasl.py",
    "tests/test_transactional_consumer.py",
    "tests/test_transactional_producer.py",
]
"""The other files test classes of aiokafka's inside alone: its codecs, records, requests, connections and clusters, its
fetcher, sender, accumulator, subscription state, group coordinator and transaction manager."""


def main() -> None:
    checkout = script.checkout("aiokafka", f"v{script.pin('aiokafka')}")
    python = pip.venv([*client.packages(), *PACKAGES], script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "tests", source / "tests")
    shutil.copy(script.folder() / "inside.py.txt", source / "inside.py")
    conftest = source / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text() + (SUITES / "aiokafka" / "fixtures.py.txt").read_text())
    words = ["-p", "inside", *TESTS, "--asyncio-mode=auto", f"--docker-image={IMAGE}", "--no-pull"]
    variables = client.variables(source)
    script.report_all(pip.pytest(python, source, script.scratch() / "pytest.log", words, variables, without="tests."))


script.run(main)
