"""State machines and logs check what they rely on: a wrong state stops where it begins, and not three records later."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES_PER_ASSERT_MAX = 100


@pytest.mark.parametrize(
    "folder",
    [
        "broker/semel_broker/groups",
        "broker/semel_broker/partitions",
        "broker/semel_broker/txn",
        "storage/semel_storage/log",
    ],
)
def test_a_folder_of_states_has_an_assert_in_each_hundred_lines(folder: str) -> None:
    texts = [path.read_text() for path in (ROOT / folder).rglob("*.py")]
    asserts = sum(isinstance(node, ast.Assert) for text in texts for node in ast.walk(ast.parse(text)))
    lines = sum(text.count("\n") for text in texts)
    assert lines <= asserts * LINES_PER_ASSERT_MAX, f"{folder}: {asserts} asserts in {lines} lines"
