"""Fixtures of all fuzzing tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_old_is_collected() -> Iterator[None]:
    """Freeze the objects of earlier tests. Otherwise a full collection would visit them and add CPU time to a turn of
    the event loop."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
