"""The index of the site's search: what a user needs comes before what a maker needs, and each setting is found by name.

zensical's search puts a word in a title before the same word in a text, and a title that begins with it before others.
Else it goes by the order of the index. It has no other weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tools.website.made.anchors import ANCHORED_ROW

SECOND_SHELF = "Inside"
LEFT_OUT = ("map/",)
"""Pages with thousands of names: a search for a word of a user would end there."""
ROWS = re.compile(r"(?:setting .{1,30} what it does, and what it may be|name type labels what it is) .*", re.S)

Entry = dict[str, Any]


def ordered(index: dict[str, Any], pages: Mapping[str, str]) -> dict[str, Any]:
    """Return the index in the order of the shelves, with an entry for each row that has an address.

    `pages`: path of a page on the site -> its Markdown.
    """
    entries = []
    for entry in index["items"]:
        if entry["location"].startswith(LEFT_OUT):
            continue
        entries.append({**entry, "text": ROWS.sub("", entry["text"])})
        if entry["level"] == 1:
            entries += _rows(entry, pages.get(entry["location"], ""))
    return {**index, "items": sorted(entries, key=_shelf)}


def _rows(page: Entry, text: str) -> Iterator[Entry]:
    for row in ANCHORED_ROW.finditer(text):
        *facts, about = (re.sub(r"[`*\\]", "", cell).strip() for cell in row["rest"].split(" | "))
        short = ", ".join(fact for fact in facts if fact)
        location = f"{page['location']}#{row['anchor']}"
        yield {**page, "location": location, "level": 4, "title": row["name"], "text": f"{about} ({short})"}


def _shelf(entry: Entry) -> int:
    """0: *Use it*; 1: its reference of classes; 2: *Inside*; 3: pages that the navigation does not name."""
    if entry["location"].startswith("api/"):
        return 1
    path = entry["path"]
    return 3 if not path else 2 if path[0] == SECOND_SHELF else 0
