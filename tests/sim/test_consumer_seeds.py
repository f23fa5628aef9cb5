"""Seeds whose only workload is a group of the consumer protocol: `make sim WORKLOAD=consumers`, `consumer-pipeline`
or `consumer-churn`. `make test` runs two of each.
"""

from __future__ import annotations

import pytest
from support.tiers import tiered

from sim.plan import draw
from sim.run import run
from sim.workloads import WITH_CONSUMERS

SEEDS = {1: 100, 3: 30}
"""By number of brokers."""
STEP = 2
TASKS = [
    (kind, brokers, first)
    for kind in WITH_CONSUMERS
    for brokers, count in SEEDS.items()
    for first in range(0, count, STEP)
]


@pytest.mark.parametrize(("kind", "brokers", "first"), tiered(TASKS, lambda task: task[1:] == (1, 0)))
def test_nothing_is_found(kind: str, brokers: int, first: int) -> None:
    found = []
    for seed in range(first, first + STEP):
        verdict = run(draw(seed, (kind,), brokers))
        if not verdict.is_clean:
            command = f"make sim WORKLOAD={kind} BROKERS={brokers} SEED={seed}"
            found += [command, *map(str, verdict.anomalies[:3]), *verdict.failures[:2]]
    assert not found, "\n".join(found)


def test_a_run_has_at_most_one_group_of_the_consumer_protocol() -> None:
    """Two would need two session timeouts of one broker."""
    for seed in range(50):
        assert [workload.kind for workload in draw(seed, WITH_CONSUMERS, 3).workloads] in [
            [kind] for kind in WITH_CONSUMERS
        ]
