"""The first program of docs/serializers.md runs against a broker and prints what its types promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.processes import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "serializers.md"


def test_the_json_program_runs(tmp_path: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        there = f"bootstrap_servers={broker.address!r}, "
        program = program.replace("Producer(key", f"Producer({there}key").replace(
            '        "orders",\n', f'        "orders", {there}\n'
        )
        (tmp_path / "program.py").write_text(program)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "program.py")],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        broker.stop()
    assert done.stdout == "customer 7 2\n", done.stderr
