"""Pauses between attempts: they double up to a bound, and come after all alternatives have failed."""

from __future__ import annotations

from random import Random

import pytest
from semel_protocol.backoff import Backoff


@pytest.mark.parametrize("jitter", [(0.8, 1.2), (0.5, 1.0)])
def test_pauses_double_up_to_the_maximum_and_begin_again_after_a_success(jitter: tuple[float, float]) -> None:
    low, high = jitter
    backoff = Backoff(Random(2), 100, 1_000, jitter=jitter)
    for _ in range(2):
        for exact in (100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000):
            assert low * exact <= backoff.next_ms() <= high * exact
        backoff.reset()


def test_the_next_alternative_is_tried_without_a_pause() -> None:
    backoff = Backoff(Random(2), 100, 1_000, jitter=(1.0, 1.0), alternatives=3)
    assert [backoff.next_ms() for _ in range(7)] == [0, 0, 100, 0, 0, 200, 0]
    backoff.reset()
    assert [backoff.next_ms() for _ in range(3)] == [0, 0, 100]
