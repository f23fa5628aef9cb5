"""docs/reliability.md names the test of each bug and each trouble: each is there, and no trouble is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


def named(text: str) -> list[tuple[str, str]]:
    return NAMED.findall(text)


def missing(text: str, root: Path) -> Iterator[str]:
    for path, name in named(text):
        file = root / path
        if not file.is_file() or name not in DEFINED.findall(file.read_text()):
            yield f"{path}::{name}"


def rows_without_a_test(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if (
            line.startswith("| ")
            and not line.startswith(("| what must never happen |", "| trouble |"))
            and not named(line)
        ):
            yield line


def test_every_test_that_is_named_exists() -> None:
    text = PAGE.read_text()
    assert len(named(text)) > 100
    assert list(missing(text, ROOT)) == []


def test_every_bug_and_every_trouble_has_a_test() -> None:
    text = PAGE.read_text().partition("## Anomalies found by the simulator")[0]
    assert list(rows_without_a_test(text)) == []


def test_every_test_of_a_trouble_is_in_the_page() -> None:
    told = {name for _, name in named(PAGE.read_text())}
    for file in sorted((ROOT / "tests" / "broker" / "troubles").glob("test_*.py")):
        assert [name for name in DEFINED.findall(file.read_text()) if name not in told] == [], file.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`tests/t.py::test_here`", []),
        ("`tests/t.py::test_gone`", ["tests/t.py::test_gone"]),
        ("`tests/no.py::test_here`", ["tests/no.py::test_here"]),
    ],
)
def test_a_name_that_is_not_there_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.py").write_text("async def test_here() -> None: ...\n")
    assert list(missing(text, tmp_path)) == expected
    assert list(rows_without_a_test(f"| a bug | {text} |\n| another |  |")) == ["| another |  |"]
