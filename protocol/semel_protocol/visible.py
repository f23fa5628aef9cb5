"""Escapes control characters in text from peers, so that it cannot control a terminal or fake log lines.

Clients and brokers choose ids, group names, hosts, messages and records. All commands and the broker's log lines for
people use `visible`. Characters that reorder or hide text (bidirectional overrides, tags) are escaped too.
"""

from __future__ import annotations

import json
import re

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""`text` on one line; control characters are written as Python escapes: \n, \x1b, \u202e."""
    return text if text.isprintable() else _HARMFUL.sub(_escaped, text)


def encodable(text: str) -> str:
    r"""The same text if it can be encoded as UTF-8; surrogates, as in file names of other encodings, become \udcff."""
    return text.encode("utf-8", "backslashreplace").decode()


def visible_bytes(data: bytes) -> str:
    r"""Bytes as `visible` text; bytes that are not UTF-8 are shown as \xff."""
    return visible(data.decode("utf-8", "backslashreplace"))


def visible_json(line: str) -> str:
    """The same JSON with every character escaped that `visible` would escape."""
    return line if line.isprintable() else _HARMFUL.sub(_escaped_in_json, line)


SHOWN_CHARS_MAX = 80


def shown(value: object) -> str:
    """A value for an error message, cut to a readable length. Never raises."""
    try:
        text = repr(value)
    except Exception:  # the error names the value all the same
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")


def _escaped_in_json(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
