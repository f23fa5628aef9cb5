"""The first seeds of `make sim`: runs of broker and clients under faults; `make test` runs twenty of them.

`make sim SEED=n` runs a failing seed again with its transcript; docs/proof.md explains how to read it.
"""

from __future__ import annotations

import pytest
from support.tiers import tiered

from sim.__main__ import SEEDS
from sim.plan import draw
from sim.run import run

STEP = 10
QUICK = 20


def check(first: int) -> None:
    found = []
    for seed in range(first, first + STEP):
        verdict = run(draw(seed))
        if not verdict.is_clean:
            found += [f"make sim SEED={seed}", *map(str, verdict.anomalies[:3]), *verdict.failures[:2]]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("first", tiered(range(0, SEEDS, STEP), lambda first: first < QUICK))
def test_nothing_is_found(first: int) -> None:
    check(first)


def test_a_damaged_log_that_opens_last_is_repaired() -> None:
    """It opens in the turn in which the broker begins to serve, after the first look at offline partitions."""
    verdict = run(draw(5053))
    assert verdict.is_clean, (*verdict.anomalies, *verdict.failures)
