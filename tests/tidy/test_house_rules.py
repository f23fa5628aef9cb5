"""Every file of the packages keeps the house rules."""

import re
from pathlib import Path

import pytest
from tidy.rules import RULES, Rule, SourceFile, docstrings_of_functions_are_imperative, names_are_plain, texts_are_plain

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "storage", "broker", "client", "console", "pipeline")
SOURCES = [
    SourceFile(path.relative_to(ROOT).as_posix(), path.read_text())
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
]


OTHERS = ("demo", "examples", "tests", "tools")
"""The language of these is checked, too."""


def test_the_language_of_all_other_folders() -> None:
    sources = [
        SourceFile(path.relative_to(ROOT).as_posix(), path.read_text())
        for folder in OTHERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    assert len(sources) > 100
    rules = (texts_are_plain, names_are_plain, docstrings_of_functions_are_imperative)
    broken = [place for source in sources for rule in rules for place in rule(source)]
    assert not broken, "\n".join(broken)


def test_all_packages_are_looked_at() -> None:
    for package in PACKAGES:
        assert sum(source.path.startswith(f"{package}/") for source in SOURCES) > 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule: Rule) -> None:
    broken = [place for source in SOURCES for place in rule(source)]
    assert not broken, "\n".join(broken)


def test_no_text_asks_a_package_index_for_semel() -> None:
    """The index need not have this version, or any. Code asks `semel_protocol.extras`, and pages name a checkout."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    sources = [path for folder in (*PACKAGES, *OTHERS) for path in (ROOT / folder).rglob("*.py")]
    allowed = {ROOT / "protocol/semel_protocol/extras.py", ROOT / "tests/protocol/test_extras.py"}
    asks = re.compile(r"pip install [^`\n]*(?<![/\w.-])semel\b(?![-/_.])")
    found = [
        f"{path.relative_to(ROOT)}: {hint.group()}"
        for path in [*pages, *sources]
        if path not in allowed
        for hint in asks.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)
