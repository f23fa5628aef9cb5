"""Parts of pages that the site alone has: each is made of a table in the code, and no file of the repository holds it.

A committed page marks the place, with a sentence for readers of the repository:

    <!-- made: metrics -->
    The site has the table (`make docs`).
    <!-- end -->

`python -m tools.website.made metrics` prints one part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from tools.website.made.anchors import anchored

PARTS = {
    "ablations": "sim.ablations.record:part",
    "authorization": "tools.website.made.authorization:requests",
    "authorization-operations": "tools.website.made.authorization:operations",
    "client-settings": "tools.website.made.client_settings:part",
    "compatibility-clients": "tools.website.made.compatibility:clients",
    "compatibility-differences": "tools.website.made.compatibility:differences",
    "compatibility-runs": "tools.website.made.compatibility:runs",
    "metrics": "tools.website.made.metrics:part",
    "proven-found": "tools.website.made.proven:found",
    "proven-never": "tools.website.made.proven:never",
    "proven-security": "tools.website.made.proven:security",
    "proven-trouble": "tools.website.made.proven:trouble",
    "settings": "semel_broker.config.listing:as_markdown",
    "states": "tools.website.made.states:part",
    "strangers": "tools.website.made.compatibility:strangers",
}
"""Name of a part -> module and function that return it as Markdown."""
ANCHORED = {"client-settings", "metrics", "settings"}
"""Parts whose rows have addresses."""
MARKED = re.compile(r"^<!-- made: (?P<name>[a-z-]+) -->\n(?P<instead>.*?)^<!-- end -->\n", re.M | re.S)


def made(name: str) -> str:
    """Return a part as Markdown, with a line feed at its end. Raises KeyError for an unknown name."""
    module, _, function = PARTS[name].partition(":")
    make: Callable[[], str] = getattr(import_module(module), function)
    part = make().strip("\n") + "\n"
    return anchored(part) if name in ANCHORED else part


def filled(page: str) -> str:
    """Return the page with its parts in place of what the repository has there."""
    return MARKED.sub(lambda found: made(found["name"]), page)
