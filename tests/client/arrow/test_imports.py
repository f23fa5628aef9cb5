"""The bare client needs no package of the extra `arrow`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.real_time
def test_neither_the_client_nor_consume_imports_arrow_or_numpy_before_a_table_is_asked_for() -> None:
    program = "import sys, semel, semel.cli.consume.commands\nprint(sorted({'numpy', 'pyarrow'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
