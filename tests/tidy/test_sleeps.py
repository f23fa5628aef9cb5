"""Tests in real time explain each sleep.

Tests of broker and client run in virtual time, where a sleep costs nothing. Other tests wait for a condition in a loop.
A sleep outside a loop has a comment on its line that names the event that the sleep waits for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import conftest
import pytest

TESTS = Path(__file__).parents[1]
VIRTUAL_LOOPS = ("sim", "fuzz", "support", "tidy")
"""Folders with a clock of their own."""
REAL_PROCESSES = ("compat", "demo", "faults", "pipeline")
"""Folders that drive real processes on real machines: their time is the processes'."""


def is_virtual(path: Path) -> bool:
    """Whether the tests of this file run in virtual time, but for those marked `real_time`."""
    return any(path.is_relative_to(folder) for folder in conftest.VIRTUAL) and not any(
        path.is_relative_to(folder) for folder in conftest.REAL
    )


def unexplained(text: str, *, virtual: bool) -> Iterator[int]:
    """Line numbers of sleeps in real time, outside a loop, without a comment."""
    lines = text.splitlines()
    tree = ast.parse(text)
    marked = any("real_time" in ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign))

    def visit(node: ast.AST, real: bool, in_loop: bool) -> Iterator[int]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            real = real or any("real_time" in ast.unparse(each) for each in node.decorator_list)
            in_loop = False
        in_loop = in_loop or isinstance(node, ast.While | ast.AsyncFor)
        if real and not in_loop and _sleeps(node) and "#" not in lines[node.lineno - 1]:
            yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from visit(child, real, in_loop)

    yield from visit(tree, marked or not virtual, False)


def _sleeps(node: ast.AST) -> bool:
    """`sleep(0)` only lets others run."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0]
    return name == "sleep" and not (isinstance(first, ast.Constant) and first.value == 0)


FILES = [
    path
    for path in sorted(TESTS.rglob("*.py"))
    if path.relative_to(TESTS).parts[0] not in (*VIRTUAL_LOOPS, *REAL_PROCESSES)
]


def test_a_sleep_in_real_time_says_why() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in FILES
        for line in unexplained(path.read_text(), virtual=is_virtual(path))
    ]
    assert not found, f"{found}: wait for a condition, or say in a comment what passes meanwhile"


@pytest.mark.parametrize(
    ("text", "virtual", "lines"),
    [
        ("async def f():\n    await asyncio.sleep(1)\n", False, [2]),
        ("async def f():\n    await asyncio.sleep(1)\n", True, []),
        ("@pytest.mark.real_time\nasync def f():\n    await asyncio.sleep(1)\n", True, [3]),
        ("pytestmark = pytest.mark.real_time\ndef f():\n    time.sleep(1)\n", True, [3]),
        ("def f():\n    time.sleep(1)  # the lease ends after 0.9 s\n", False, []),
        ("def f():\n    while not done():\n        time.sleep(1)\n", False, []),
        ("def f():\n    while True:\n        def g():\n            time.sleep(1)\n", False, [4]),
        ("async def f():\n    await asyncio.sleep(0)\n", False, []),
    ],
)
def test_what_counts_as_unexplained(text: str, virtual: bool, lines: list[int]) -> None:
    assert list(unexplained(text, virtual=virtual)) == lines
