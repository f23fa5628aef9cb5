"""EDGE: runs Kaskade's own end-to-end tests, from its source distribution, except those with a schema registry."""

from __future__ import annotations

from tools.strangers import pip, script

PACKAGES = ["pytest==9.0.2", "faker==40.54.0", "testcontainers[kafka]==4.15.0", "pytest-timeout==2.4.0"]


def main() -> None:
    version = script.pin("kaskade")
    python = pip.venv([f"kaskade=={version}", *PACKAGES], script.work() / "venv")
    source = pip.source("kaskade", version, script.work())
    tests = source / "tests" / "e2e" / "tests_e2e.py"
    tests.write_text(tests.read_text() + (script.folder() / "container.py.txt").read_text())
    words = [str(tests), "--timeout=120", "-k", "not registry and not apicurio"]
    script.report_all(pip.pytest(python, source, script.scratch() / "pytest.log", words, {}, without="tests.e2e."))


script.run(main)
