"""Malformed answers: each client call returns or raises a client error in time, and the client recovers."""

from __future__ import annotations

import pytest
from fuzz.campaigns import responses


@pytest.mark.parametrize("seed", range(40))
def test_clients_with_altered_answers_fail_cleanly_and_recover(seed: int) -> None:
    responses(seed)
