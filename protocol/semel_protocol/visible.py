"""Text from elsewhere as it may be shown: control characters escaped, so that it cannot steer a terminal or fake lines.

Ids, group names, hosts, messages and records are chosen by clients and brokers. All commands and the broker's log lines
for people go through `visible`. What reorders or hides text (bidirectional overrides, tags) is escaped too.
"""

from __future__ import annotations

import json
import re

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""`text` in one line, each control character as Python writes it: \n, \x1b, \u202e."""
    return text if text.isprintable() else _HARMFUL.sub(_escaped, text)


def visible_bytes(data: bytes) -> str:
    r"""Bytes that should be UTF-8, as `visible`; bytes that are not are shown as \xff."""
    return visible(data.decode("utf-8", "backslashreplace"))


def visible_json(line: str) -> str:
    """A line of JSON that stays the same JSON, with nothing in it that `visible` would escape."""
    return line if line.isprintable() else _HARMFUL.sub(_escaped_in_json, line)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")


def _escaped_in_json(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
