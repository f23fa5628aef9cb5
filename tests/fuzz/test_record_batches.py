"""Malformed record batches: each is refused, or is stored and does no harm to the broker and its clients."""

from __future__ import annotations

import pytest
from fuzz.campaigns import record_batches


@pytest.mark.parametrize("seed", range(16))
def test_any_batch_is_refused_or_stored_without_harm(seed: int) -> None:
    record_batches(seed)
