"""A short round with both libraries and every kind of worker: the smoke test of `make faults`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from faults.plan import PlannedFault, RoundPlan, draw
from faults.round import Round

FAULTS = [
    PlannedFault(kind="kill-broker", after_s=1.5, args={"for_s": 0.3}),
    PlannedFault(kind="pause-worker", after_s=0.5, args={"whom": "pipe-semel-0", "for_s": 1.0, "replaced": True}),
    PlannedFault(kind="kill-worker", after_s=0.3, args={"whom": "pipe-confluent-0"}),
    PlannedFault(kind="lose", after_s=0.1, args={"whom": "pipe-semel-0", "api": "EndTxn", "way": "answer"}),
    PlannedFault(kind="break-files", after_s=1.0, args={"how": [("delete", "index", 0)], "tails": 1, "clean": False}),
    PlannedFault(kind="reset", after_s=1.0, args={"whom": ""}),
]
SEED_WITH_BOTH = next(
    seed
    for seed in range(1000)
    if {"pipe-semel-0", "pipe-confluent-0"} <= {worker.name for worker in draw(seed, small_disk=False).workers}
    and len(draw(seed, small_disk=False).workers) == 4
)


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_round_of_few_faults_is_clean(tmp_path: Path) -> None:
    plan: RoundPlan = msgspec.structs.replace(draw(SEED_WITH_BOTH, small_disk=False), faults=FAULTS)
    verdict = await Round(plan, tmp_path / "round", print).run()
    assert verdict.is_clean, [*map(str, verdict.anomalies), *verdict.problems]
    assert verdict.operations["stored"] > 100
    assert verdict.operations["committed"] > 10
    assert verdict.faults["kill-broker"] == verdict.faults["break-files"] == 1
