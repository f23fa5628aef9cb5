"""The documents stay small, and what is made of the code is not committed."""

from __future__ import annotations

import re

import pytest

from tools.website import ROOT
from tools.website.made import MARKED, PARTS, filled, made

PAGES = sorted(ROOT.glob("docs/**/*.md"))
SUM_MAX = 400_000
PAGE_MAX = 30_000
DATA_MAX = 70_000
"""Bytes of all pages of docs/ together, of one, and of all facts in docs/data."""
WORDS_MAX = 18
"""The mean of words in a sentence."""
ROW_MIN = 40
"""Shorter rows of tables may stand in a page that is written by hand."""


def marks() -> list[str]:
    return [found["name"] for page in PAGES for found in MARKED.finditer(page.read_text())]


def test_the_pages_are_small_and_so_is_their_sum() -> None:
    sizes = {page.relative_to(ROOT).as_posix(): page.stat().st_size for page in PAGES}
    assert {page: size for page, size in sizes.items() if size > PAGE_MAX} == {}
    assert sum(sizes.values()) <= SUM_MAX
    assert sum(file.stat().st_size for file in ROOT.glob("docs/data/*")) <= DATA_MAX


@pytest.mark.parametrize("page", ["proof", "old-clients", "reliability", "compatibility", "security"])
def test_sentences_are_short(page: str) -> None:
    counts = [len(each.split()) for each in sentences((ROOT / f"docs/{page}.md").read_text())]
    assert len(counts) > 20
    assert sum(counts) / len(counts) <= WORDS_MAX


def sentences(text: str) -> list[str]:
    """The sentences of a page without headings, tables, blocks and targets of links."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|\]\([^)]*\)", "", text, flags=re.M | re.S)
    lines = ["" if line.startswith(("|", "#")) else line for line in text.splitlines()]
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:- |\d+\. ))", "\n".join(lines))
    return [each for part in paragraphs for each in re.split(r"(?<=[.!?:])\s+(?=[A-Z`*\[(])", part.strip()) if each]


def test_each_made_part_has_one_place() -> None:
    assert sorted(marks()) == sorted(PARTS)
    assert sum(page.read_text().count("<!-- made: ") for page in PAGES) == len(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_a_made_part_is_not_committed(name: str) -> None:
    rows = [line for line in made(name).splitlines() if line.startswith("|") and len(line) >= ROW_MIN]
    committed = {line for page in PAGES for line in page.read_text().splitlines()}
    assert rows or "```mermaid" in made(name)
    assert [row for row in rows if row in committed] == []


def test_a_page_is_filled_at_its_marks() -> None:
    page = "# Page\n\n<!-- made: authorization -->\nThe site has it.\n<!-- end -->\n\nEnd.\n"
    whole = filled(page)
    assert whole.startswith("# Page\n\n| key | request |")
    assert whole.endswith("|\n\nEnd.\n")
    assert "The site has it" not in whole
