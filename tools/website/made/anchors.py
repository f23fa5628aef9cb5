"""An address for each row of a table: `settings.md#log.retention.ms` leads to the setting log.retention.ms."""

from __future__ import annotations

import re
from itertools import groupby

ROW = re.compile(r"^\| `(?P<name>[a-zA-Z0-9_.]+)` \|")
ANCHORED_ROW = re.compile(r"^\| \[`(?P<name>[^`]+)`\]\(#\S+\)\{ #(?P<anchor>\S+) \} \|(?P<rest>.*)\|$", re.M)
HEADING = re.compile(r"^#+ (?P<title>.+)$")


def anchored(part: str) -> str:
    """Return a part whose tables have an anchor in each row that begins with a name: the name itself.

    A name that a table above has already gets the heading of its own table before it: `topics.compression.type`.
    """
    lines, heading, taken = [], "", set[str]()
    for is_table, block in groupby(part.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            lines += ['<div class="settings" markdown="1">', "", *(_row(each, heading, taken) for each in block)]
            lines += ["", "</div>"]
            continue
        for line in block:
            if found := HEADING.match(line):
                heading = re.sub(r"\W+", "-", found["title"].lower())
            lines.append(line)
    return "\n".join(lines) + "\n"


def _row(line: str, heading: str, taken: set[str]) -> str:
    found = ROW.match(line)
    if not found:
        return line
    name = found["name"]
    anchor = f"{heading}.{name}" if name in taken else name
    taken.add(anchor)
    return f"| [`{name}`](#{anchor}){{ #{anchor} }} |{line[found.end() :]}"


def anchors(part: str) -> set[str]:
    """Return the anchors of the rows of an anchored part."""
    return {row["anchor"] for row in ANCHORED_ROW.finditer(part)}
