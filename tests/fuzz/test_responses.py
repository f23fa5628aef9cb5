"""Whatever a broker answers, a client returns or raises an error of its own, in time, and gets over it."""

from __future__ import annotations

import pytest
from fuzz.campaigns import responses


@pytest.mark.parametrize("seed", range(40))
def test_clients_that_are_lied_to_fail_cleanly_and_get_over_it(seed: int) -> None:
    responses(seed)
