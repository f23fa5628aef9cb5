"""The tiers of the suite: `make test` runs a part of the tests with seeds or names, `make test-all` runs all of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def tiered(values: Iterable[T], is_quick: Callable[[T], bool]) -> list[Any]:
    """Parameters of a test: those that are not quick are marked `thorough`."""
    return [value if is_quick(value) else _thorough(value) for value in values]


def _thorough(value: Any) -> Any:
    """A tuple is the values of several parameters."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.thorough)
