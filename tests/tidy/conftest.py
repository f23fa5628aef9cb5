"""Hints at the end of `make check`."""

from __future__ import annotations

import pytest
from tidy.rules import long_files
from tidy.test_house_rules import SOURCES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for hint in long_files(SOURCES):
        terminalreporter.write_line(f"hint: {hint}")
