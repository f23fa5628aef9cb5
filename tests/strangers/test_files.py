"""The suites of the repository: each is valid, has its script, and holds no third-party code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.strangers.runner import RESULTS, SUITES, records, suites
from tools.strangers.suite import Suite

FILE_BYTES_MAX = 60_000
"""A larger file suggests copied third-party code."""


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.name)
def test_a_suite_has_its_script_and_is_small(suite: Suite) -> None:
    folder = SUITES / suite.name
    assert (folder / "run.py").is_file()
    assert [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_size > FILE_BYTES_MAX] == []


def test_every_folder_is_a_suite() -> None:
    folders = [path.name for path in SUITES.iterdir() if path.is_dir() and any(path.iterdir())]
    assert sorted(folders) == sorted(suite.name for suite in suites())


def test_stored_results_belong_to_existing_suites() -> None:
    names = [suite.name for suite in suites()]
    assert [each.file_name for each in records() if each.suite not in names] == []
    for path in Path(RESULTS).glob("*.json"):
        assert path.stat().st_size < FILE_BYTES_MAX
