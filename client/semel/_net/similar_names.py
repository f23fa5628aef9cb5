"""PURE: a question for the end of a message about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def similar(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'flights'?`, with the known names that are most like it; or ""."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
