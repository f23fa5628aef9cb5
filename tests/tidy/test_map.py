"""The map of the files has a row for each of them, and ARCHITECTURE.md names files that exist."""

from __future__ import annotations

import re

from tools.website import ROOT
from tools.website.file_map import PACKAGES, file_map, rows, summary


def test_the_map_has_a_row_for_each_file() -> None:
    text = file_map()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "__init__.py" and not path.name.startswith("k"):
                assert f"| `{path.name}` |" in text


def test_every_folder_says_what_it_is() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("__init__.py"):
            assert summary(path), path


def test_a_row_is_the_first_sentence_and_a_remark(tmp_path: object) -> None:
    folder = ROOT / "broker/semel_broker"
    table = "\n".join(rows(folder, folder))
    assert "| `__main__.py` | `semel serve`" in table
    assert "*(edge)*" in table


def test_every_file_of_a_journey_is_there() -> None:
    """`folder/file`, in the broker unless the paragraph says otherwise."""
    document = (ROOT / "ARCHITECTURE.md").read_text()
    journeys = document[document.index("## Journeys") : document.index("## Rules that hold")]
    homes = ["", "protocol", *PACKAGES]
    for name in re.findall(r"`([a-z_]+(?:/[a-z0-9_]+)+)`", journeys):
        found = [ROOT / home / f"{name}.py" for home in homes] + [
            ROOT / home.partition("/")[0] / f"{name}.py" for home in homes
        ]
        assert any(path.exists() for path in found), f"{name} is not there"
