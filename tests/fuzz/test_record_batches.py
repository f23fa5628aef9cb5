"""Record batches as no client should send them: refused, or stored so that everybody can go on, readers included."""

from __future__ import annotations

import pytest
from fuzz.campaigns import record_batches


@pytest.mark.parametrize("seed", range(16))
def test_any_batch_is_refused_or_can_be_lived_with(seed: int) -> None:
    record_batches(seed)
