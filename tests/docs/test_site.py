"""The documents as a whole: links lead somewhere, and the site lists every page."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from docs.blocks import ROOT

from tools.website.made import MARKED, made
from tools.website.made.anchors import anchors
from tools.website.search import SECOND_SHELF

SITE = tomllib.loads((ROOT / "tools/website" / "zensical.toml").read_text())["project"]
MADE = {"map.md"}
"""Pages that `make docs` makes."""
NOT_ON_THE_SITE = {"CODE_OF_CONDUCT.md", "tools/cluster/README.md", "tools/strangers/README.md"}
"""Pages that other pages link to; the navigation need not name them."""


DOCUMENTS = [
    page
    for pattern in ("*.md", "docs/**/*.md", "docs/data/*.toml", "examples/*.md", "tools/*/*.md")
    for page in ROOT.glob(pattern)
]
LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]*))?\)")


def test_each_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for page in DOCUMENTS:
        folder = page.parent if page.suffix == ".md" else page.parents[1]  # facts appear on pages of docs/
        for link in LINK.finditer(page.read_text()):
            target = folder / link["path"] if link["path"] else page
            if not target.exists() or (link["heading"] and link["heading"] not in headings(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link[0]}")
    assert broken == []


def test_headings_are_named_as_links_name_them() -> None:
    assert "known-bugs-and-their-tests" in headings(ROOT / "docs/security.md")
    assert "no-such-heading" not in headings(ROOT / "docs/security.md")


@cache
def headings(page: Path) -> set[str]:
    """The names of a page's headings in links, and those of rows that the site has."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    rows = {anchor for mark in MARKED.finditer(text) for anchor in anchors(made(mark["name"]))}
    return rows | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.M)
    }


def test_rows_of_settings_are_named_as_links_name_them() -> None:
    assert {"log.retention.ms", "retention.ms", "min.insync.replicas", "topics.min.insync.replicas"} <= headings(
        ROOT / "docs/settings.md"
    )
    assert "linger_ms" in headings(ROOT / "docs/client-settings.md")
    assert "semel_group_lag_seconds" in headings(ROOT / "docs/metrics.md")


def test_the_site_has_two_shelves_and_a_user_needs_the_first() -> None:
    first, second = SITE["nav"]
    assert [*first, *second] == ["Use it", SECOND_SHELF]
    inside = set(_pages([second]))
    assert {"docs/proof.md", "docs/ablations.md", "docs/compatibility.md", "docs/figures.md"} < inside
    assert not {page for page in inside if page.startswith("api/")}


def test_the_navigation_of_the_site_names_every_page_once() -> None:
    named = [page.replace("index.md", "README.md") for page in _pages(SITE["nav"]) if not page.startswith("api/")]
    assert set(named) > MADE
    there = [path.relative_to(ROOT).as_posix() for pattern in ("*.md", "docs/*.md") for path in ROOT.glob(pattern)]
    there += ["docs/decisions/README.md", "examples/README.md"]
    assert sorted(named) == sorted(set(there) - NOT_ON_THE_SITE | MADE)


def test_the_navigation_names_every_page_of_the_api_reference() -> None:
    there = {f"api/{path.name}" for path in ROOT.glob("tools/website/api/*.md")}
    assert {page for page in _pages(SITE["nav"]) if page.startswith("api/")} == there


def test_the_list_of_decisions_has_all_of_them_with_their_titles() -> None:
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (ROOT / "docs/decisions/README.md").read_text(), re.M)
    there = sorted(path for path in ROOT.glob("docs/decisions/0*.md"))
    assert listed == [(path.read_text().splitlines()[0].removeprefix("# "), path.name) for path in there]


def test_workflows_and_forms_are_yaml_and_run_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))
    for path in ROOT.glob(".github/**/*.yml"):
        yaml.safe_load(path.read_text())
        for target in re.findall(r"run: make ([a-z-]+)$", path.read_text(), re.M):
            assert target in targets, f"{path.name}: make {target}"


def _pages(nav: list[Any]) -> list[str]:
    """The pages of a navigation with sections, in order."""
    found: list[str] = []
    for entry in nav:
        for target in entry.values():
            found += _pages(target) if isinstance(target, list) else [target]
    return found
