"""PURE: one value of one metric that a client has pushed."""

from __future__ import annotations

import msgspec


class UnreadableMetricsError(Exception):
    """Pushed bytes are not metrics."""


class Point(msgspec.Struct, frozen=True):
    """A value. is_counter: it never goes back. is_delta: it is the change since the push before."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    is_delta: bool
