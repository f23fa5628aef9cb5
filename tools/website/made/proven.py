"""EDGE: the facts of docs/data/proven.toml, each with the tests that prove it: tables of two pages of the site.

A test proves a fact if it has the mark `@pytest.mark.proves("name")`. So does each test of a file whose `pytestmark`
has that mark, and a scenario with the line `# proves: name`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import msgspec

from tools.website import ROOT

FACTS = ROOT / "docs/data/proven.toml"
TESTS = ROOT / "tests"
MARK = "proves"
SECURITY = "Security"
"""The area that docs/security.md shows."""


class Never(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must never happen. `without`: the safeguards whose absence the simulator notices."""

    fact: str
    without: tuple[str, ...] = ()


class Trouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What users of transactions report, and what semel answers."""

    report: str
    answer: str


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was wrong with semel itself, under which faults it was met, and what happens now."""

    wrong: str
    under: str
    now: str


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. Keys are names of facts; those of `never` are names of areas."""

    never: dict[str, dict[str, Never]]
    trouble: dict[str, Trouble]
    found: dict[str, Found]

    @property
    def names(self) -> list[str]:
        """The names of all facts."""
        return [*(name for area in self.never.values() for name in area), *self.trouble, *self.found]


@cache
def facts() -> Facts:
    """Return the facts of the file. Raises msgspec.ValidationError for a field that is missing or unknown."""
    return msgspec.toml.decode(FACTS.read_bytes(), type=Facts)


@cache
def proofs() -> dict[str, list[str]]:
    """Return the tests of each fact, as `file::function` or the name of a file."""
    found: dict[str, list[str]] = {}
    for path in sorted([*TESTS.rglob("*.py"), *TESTS.rglob("*.txt")]):
        text = path.read_text()
        place = path.relative_to(ROOT).as_posix()
        for name, test in _in_program(text) if path.suffix == ".py" else _in_scenario(text):
            found.setdefault(name, []).append(place + test)
    return found


def _in_program(text: str) -> Iterator[tuple[str, str]]:
    if f"mark.{MARK}(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.decorator_list:
                yield from ((name, f"::{node.name}") for name in _names(each))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            for each in marks:
                yield from ((name, "") for name in _names(each))


def _names(mark: ast.expr) -> list[str]:
    """The arguments of a mark; none if it is another one."""
    if not isinstance(mark, ast.Call) or not ast.unparse(mark.func).endswith(f"mark.{MARK}"):
        return []
    return [each.value for each in mark.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _in_scenario(text: str) -> Iterator[tuple[str, str]]:
    for names in re.findall(rf"^# {MARK}: (.+)$", text, re.M):
        yield from ((name, "") for name in names.split(", "))


def never() -> str:
    """The known bugs, a table for each area but that of security."""
    return "\n".join(_area(area) for area in facts().never if area != SECURITY)


def security() -> str:
    """The known bugs of security."""
    return _table(facts().never[SECURITY])


def trouble() -> str:
    """The troubles of users, and the answers."""
    rows = [f"| {each.report} | {each.answer} | {_shown(name)} |" for name, each in facts().trouble.items()]
    return "\n".join(["| trouble | what semel answers | shown by |", "|---|---|---|", *rows])


def found() -> str:
    """What was wrong with semel itself."""
    rows = [f"| {each.wrong} | {each.under} | {each.now}<br>{_shown(name)} |" for name, each in facts().found.items()]
    return "\n".join(["| what was wrong | met under | what happens now, and shown by |", "|---|---|---|", *rows])


def _area(area: str) -> str:
    return f"### {area}\n\n{_table(facts().never[area])}\n"


def _table(bugs: dict[str, Never]) -> str:
    rows = [f"| {bug.fact} | {_shown(name)}{_without(bug)} |" for name, bug in bugs.items()]
    return "\n".join(["| what must never happen | shown by |", "|---|---|", *rows])


def _shown(name: str) -> str:
    return "<br>".join(f"`{test}`" for test in proofs()[name])


def _without(bug: Never) -> str:
    return "<br>without: " + ", ".join(f"*{name}*" for name in bug.without) if bug.without else ""
