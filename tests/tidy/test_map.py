"""ARCHITECTURE.md is the map: every file of the packages is on it, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "protocol/semel_protocol",
    "storage/semel_storage",
    "broker/semel_broker",
    "client/semel",
    "pipeline/pyspark_semel",
)
NUMBERED = re.compile(r"k\d+_\w+\.py")
"""The shelves (messages/, handlers/) are one line each: their files name themselves."""


def files() -> set[str]:
    found = {path.name for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return {name for name in found if name != "__init__.py" and not NUMBERED.fullmatch(name)}


def named() -> set[str]:
    return set(re.findall(r"^\| `([a-z_]+\.py)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE))


def test_every_file_is_on_the_map_and_the_map_names_no_other() -> None:
    assert sorted(files() - named()) == [], "put these on the map in ARCHITECTURE.md"
    assert sorted(named() - files()) == [], "these are on the map but not there"
