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
