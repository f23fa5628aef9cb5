"""A required audit log that stands still: each acknowledged change has its line, and changes continue afterwards."""

from __future__ import annotations

import pytest

from sim.audited import AuditRun


@pytest.mark.parametrize("seed", range(3))
def test_each_acknowledged_change_has_its_line(seed: int) -> None:
    run = AuditRun(seed)
    verdict = run.judged()
    assert verdict.is_clean, [*verdict.anomalies, *verdict.failures]
    assert run.refused > 0, "the audit log was behind"
    assert len(run.acknowledged) > 100


def test_a_run_is_always_the_same() -> None:
    assert AuditRun(3).judged().digest == AuditRun(3).judged().digest
