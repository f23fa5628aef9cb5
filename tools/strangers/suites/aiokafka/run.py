"""EDGE: runs aiokafka's own tests, from a checkout of its tag, with the released package."""

from __future__ import annotations

import os
import shutil
import sys

from tools.strangers import pip, script

PACKAGES = ["pytest==9.0.2", "pytest-asyncio==1.3.0", "pytest-mock==3.15.1", "docker==7.1.0", "cramjam==2.11.0"]
IMAGE = "none:2.13_4.1.1"
"""The suite reads the broker's version from the name of its image."""


def main() -> None:
    checkout = script.checkout("aiokafka", f"v{script.pin('aiokafka')}")
    python = pip.venv([f"aiokafka=={script.pin('aiokafka')}", *PACKAGES], script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "tests", source / "tests")
    conftest = source / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text() + (script.folder() / "fixtures.py.txt").read_text())
    words = ["tests", "--asyncio-mode=auto", f"--docker-image={IMAGE}", "--no-pull"]
    variables = {"STRANGERS_PYTHON": sys.executable, "STRANGERS_PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    script.report_all(pip.pytest(python, source, script.scratch() / "pytest.log", words, variables, without="tests."))


script.run(main)
