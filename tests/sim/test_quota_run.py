"""Clients that open a connection for each Produce stay within their quota, and make progress."""

from __future__ import annotations

import pytest

from sim.quota_run import QuotaRun


@pytest.mark.parametrize("seed", range(5))
def test_new_connections_stay_within_a_quota(seed: int) -> None:
    verdict = QuotaRun(seed).judged()
    assert verdict.is_clean, [*verdict.anomalies, *verdict.failures]


def test_a_run_is_always_the_same() -> None:
    assert QuotaRun(3).judged().digest == QuotaRun(3).judged().digest
