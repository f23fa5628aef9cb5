"""Links out of the site."""

from __future__ import annotations

import tomllib

from tools.website import ROOT
from tools.website.links import WIKI, with_proposals, with_repository

CONFIG = (ROOT / "tools/website/zensical.toml").read_text()
URLS = '[project]\nname = "semel"\n[project.urls]\nRepository = "https://example.org/semel"\n'


def test_the_first_mention_of_a_proposal_is_a_link() -> None:
    page = "# KIP-848\n\n`KIP-848` [KIP-848](there.md) (KIP-848), KIP-848, KIP-13\n\n```text\nKIP-890\n```\n"
    linked = with_proposals(page)
    assert linked.count(WIKI) == 1
    assert f"([KIP-848]({WIKI}KIP-848%3A+" in linked
    assert linked.startswith("# KIP-848\n\n`KIP-848` [KIP-848](there.md) ([KIP-848](")
    assert linked.endswith("), KIP-848, KIP-13\n\n```text\nKIP-890\n```\n")


def test_the_site_links_to_the_repository_that_the_project_names() -> None:
    assert with_repository(CONFIG, '[project]\nname = "semel"\n') == CONFIG
    issues = f'{URLS}Issues = "https://example.org/semel/issues"\n'
    project = tomllib.loads(with_repository(CONFIG, issues))["project"]
    assert project["repo_url"] == "https://example.org/semel"
    assert project["nav"][-1] == {"Issues": "https://example.org/semel/issues"}
    assert len(project["nav"]) == len(tomllib.loads(CONFIG)["project"]["nav"]) + 1
