"""Partitions whose files a leader cannot use any more are led by another replica."""

from __future__ import annotations

import pytest

from sim.offline import OfflineRun


@pytest.mark.parametrize("seed", range(5))
def test_another_replica_leads(seed: int) -> None:
    verdict = OfflineRun(seed).judged()
    assert verdict.is_clean, [*verdict.anomalies, *verdict.failures]


def test_a_run_is_always_the_same() -> None:
    assert OfflineRun(3).judged().digest == OfflineRun(3).judged().digest
