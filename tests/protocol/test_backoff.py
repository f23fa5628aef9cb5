"""Pauses between attempts: they double up to a bound, and come after all alternatives have failed."""

from __future__ import annotations

from random import Random

import pytest
from semel_broker.scheduling.backoff import Backoff


@pytest.mark.parametrize("jitter", [(0.8, 1.2), (0.5, 1.0)])
def test_pauses_double_up_to_the_maximum_and_begin_again_after_a_success(jitter: tuple[float, float]) -> None:
    low, high = jitter
    backoff = Backoff(Random(2), 0.1, 1.0, jitter=jitter)
    for _ in range(2):
        for exact in (0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1):
            assert low * exact <= backoff.failed() <= high * exact
        backoff.succeeded()


def test_the_next_alternative_is_tried_without_a_pause() -> None:
    backoff = Backoff(Random(2), 0.1, 1.0, jitter=(1.0, 1.0), alternatives=3)
    assert [backoff.failed() for _ in range(7)] == [0, 0, 0.1, 0, 0, 0.2, 0]
    backoff.succeeded()
    assert [backoff.failed() for _ in range(3)] == [0, 0, 0.1]
