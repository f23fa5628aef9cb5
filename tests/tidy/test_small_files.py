"""A file holds one noun whole: the number of small files is bounded, and the bound only falls."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "storage", "broker", "client", "console", "pipeline")
LINES_SMALL = 60
SMALL_MAX = 96
"""Lower it with each file that goes to its user. It never rises."""
ONE_API = re.compile(r"k\d+_\w+\.py")


def test_the_number_of_small_files_only_falls() -> None:
    """Files of one API, those that aiokafka names, and those that make a folder a package do not count."""
    small = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not ONE_API.fullmatch(path.name)
        and path.name not in ("__init__.py", "__main__.py")
        and "aiokafka" not in path.parts
        and len(path.read_text().splitlines()) < LINES_SMALL
    ]
    assert len(small) <= SMALL_MAX, "give thirty lines that have one user to their user:\n" + "\n".join(small)
