"""EDGE: runs tests of this repository that need a broker against the brokers of a suite (`pytest --against`)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.strangers import pip, script

ROOT = Path(__file__).parents[2]
PACKAGES = ("pytest", "pytest_asyncio", "pytest_timeout", "hypothesis", "confluent_kafka", "semel_broker")
"""The imports of the tests, for a check before they run."""


def run(words: Sequence[str], needs: Sequence[str] = ()) -> None:
    """Run pytest with these words and report each test. `needs`: further packages that they import.

    Raises NothingToRunError if a package is missing.
    """
    missing = [name for name in (*PACKAGES, *needs) if importlib.util.find_spec(name) is None]
    if missing:
        raise script.NothingToRunError(f"not installed: {', '.join(missing)}; try: pip install -e '.[dev]'")
    for name, wanted in script.suite().pins.items():
        if (found := importlib.metadata.version(name)) != wanted:
            raise script.NothingToRunError(f"{name} {found} is installed, and the suite is for {wanted}")
    given = ["--against", script.bootstrap(), "--basetemp", str(script.scratch() / "tmp"), *words]
    variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    python = Path(sys.executable)
    script.report_all(pip.pytest(python, ROOT, script.scratch() / "pytest.log", given, variables, without="tests."))
