"""docs/security.md names the tests of each class of bugs, and safeguards of the simulator: each is there."""

from __future__ import annotations

import re

from tidy.test_reliability_map import ROOT, missing, named

TABLE = (ROOT / "docs" / "security.md").read_text().partition("## Known bugs and their tests")[2]
NUMBERS = re.findall(r"^\| (\d+)\. .+\|$", TABLE, re.MULTILINE)
ABLATIONS = (ROOT / "docs" / "ablations.md").read_text()
OF_RIGHTS = (ROOT / "tests" / "sim" / "ablations" / "rights.py").read_text()


def lines() -> list[str]:
    return [line for line in TABLE.splitlines() if re.match(r"\| \d", line)]


def without(line: str) -> list[str]:
    return re.findall(r"\*([^*]+)\*", line.partition("without: ")[2])


def test_every_class_has_a_number_and_a_test() -> None:
    assert list(map(str, range(1, 14))) == NUMBERS
    assert [line for line in lines() if not named(line)] == []


def test_every_test_that_is_named_exists() -> None:
    assert list(missing(TABLE, ROOT)) == []


def test_every_safeguard_that_is_named_is_one_of_the_simulator() -> None:
    for line in lines():
        for name in without(line):
            assert f"\n| {name} |" in ABLATIONS, name


def test_every_safeguard_of_rights_is_in_the_page() -> None:
    told = {name for line in lines() for name in without(line)}
    assert set(re.findall(r'^@of_rights\("([^"]+)"', OF_RIGHTS, re.MULTILINE)) == told
