"""The example of docs/transaction-groups.md has the results that the page promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from client.cli.test_txn import TxnShell
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.semel_only("needs transaction groups (BeginTransactionGroup, API 20001)")

DOCS = Path(__file__).parents[3] / "docs/transaction-groups.md"
ROWS = sorted(str(row) for row in range(18))


def test_the_example_writes_each_row_once_however_often_it_runs(semel_broker: EphemeralBroker) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert "localhost:9092" in code
    code = code.replace("localhost:9092", semel_broker.bootstrap_servers)
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    read = TxnShell(semel_broker)(
        "consume", "payments", "--from-beginning", "--exit-at-end", "--isolation", "read_committed"
    )
    assert sorted(read.split()) == ROWS
