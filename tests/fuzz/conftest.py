"""What holds for all fuzzing under pytest."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_old_is_collected() -> Iterator[None]:
    """A full collection looks at all that earlier tests have left, and is CPU time of whichever turn of an event loop
    it comes in. Here it finds only what is new."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
