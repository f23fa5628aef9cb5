"""Links out of the site: proposals of Kafka (KIPs), and the repository once pyproject.toml names it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

WIKI = "https://cwiki.apache.org/confluence/display/KAFKA/"
PROPOSALS = {
    "98": "KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging",
    "447": "KIP-447%3A+Producer+scalability+for+exactly+once+semantics",
    "714": "KIP-714%3A+Client+metrics+and+observability",
    "848": "KIP-848%3A+The+Next+Generation+of+the+Consumer+Rebalance+Protocol",
    "890": "KIP-890%3A+Transactions+Server-Side+Defense",
    "932": "KIP-932%3A+Queues+for+Kafka",
}
"""Number -> the name of its page. Other proposals are in Kafka's list, which the glossary links to."""
PLACE = re.compile(r"`[^`]*`|\[[^\]]*\](?:\([^)]*\))?|<[^>]*>|\bKIP-(?P<number>\d+)\b")
"""A mention of a proposal in a text; code, links and HTML are passed over."""


def with_proposals(page: str) -> str:
    """Return a page in which the first mention of each known proposal is a link."""
    seen: set[str] = set()

    def link(found: re.Match[str]) -> str:
        number = found["number"]
        if number not in PROPOSALS or number in seen:
            return found[0]
        seen.add(number)
        return f"[{found[0]}]({WIKI}{PROPOSALS[number]})"

    return "\n".join(PLACE.sub(link, line) if is_text else line for is_text, line in _lines(page))


def _lines(page: str) -> Iterator[tuple[bool, str]]:
    """Each line, and whether it is text: neither a heading nor in a block of code."""
    in_code = False
    for line in page.split("\n"):
        is_fence = line.lstrip().startswith("```")
        in_code ^= is_fence
        yield not (in_code or is_fence or line.startswith("#")), line


def with_repository(config: str, project: str) -> str:
    """Return the site's configuration with the addresses of `[project.urls]` in pyproject.toml, if it has them.

    `Repository` becomes the link in the head of each page, `Issues` a tab.
    """
    urls = tomllib.loads(project)["project"].get("urls", {})
    if "Repository" in urls:
        config = config.replace("[project]\n", f'[project]\nrepo_url = "{urls["Repository"]}"\n', 1)
    if "Issues" in urls:
        config = config.replace(
            "\n]\n\n[project.theme]", f'\n  {{ "Issues" = "{urls["Issues"]}" }},\n]\n\n[project.theme]', 1
        )
    return config
