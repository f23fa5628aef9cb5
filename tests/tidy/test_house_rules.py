"""Every file of the packages keeps the house rules."""

from pathlib import Path

import pytest
from tidy.rules import RULES, Rule, Source

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "storage", "broker", "client", "pipeline")
SOURCES = [
    Source(path.relative_to(ROOT).as_posix(), path.read_text())
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
]


def test_all_packages_are_looked_at() -> None:
    for package in PACKAGES:
        assert sum(source.path.startswith(f"{package}/") for source in SOURCES) > 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule: Rule) -> None:
    broken = [place for source in SOURCES for place in rule(source)]
    assert not broken, "\n".join(broken)
