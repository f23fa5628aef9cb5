"""A short round on three brokers and an etcd: the smoke test of `make faults BROKERS=3`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from support import etcd

sys.path.insert(0, str(Path(__file__).parents[2]))

from faults.cluster_plan import draw_cluster
from faults.plan import PlannedFault, RoundPlan
from faults.round import Round
from tools.cluster import namespaces

FAULTS = [
    PlannedFault(kind="kill-broker", after_s=1.5, args={"office": "transactions", "number": 0, "for_s": 0.0}),
    PlannedFault(kind="kill-worker", after_s=0.1, args={"whom": "pipe-semel-0"}),
    PlannedFault(kind="restart-etcd", after_s=1.0, args={"clean": False, "for_s": 0.5}),
    PlannedFault(kind="pause-broker", after_s=1.0, args={"office": "leader", "number": 0, "for_s": 2.5}),
]
CUT = PlannedFault(kind="cut", after_s=0.5, args={"ends": ["broker-1", "broker-2"], "one_way": False, "for_s": 1.0})
WORKERS = ["writer-semel", "pipe-semel-0", "pipe-confluent-0"]
SEED = next(
    seed for seed in range(1000) if [worker.name for worker in draw_cluster(seed, namespaces=False).workers] == WORKERS
)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
async def test_a_round_of_few_faults_is_clean(tmp_path: Path, secure: bool) -> None:
    faults = [*FAULTS, CUT] if namespaces.works() else FAULTS
    plan: RoundPlan = msgspec.structs.replace(draw_cluster(SEED, namespaces=False), faults=faults, secure=secure)
    verdict = await Round(plan, tmp_path / "round", print).run()
    assert verdict.is_clean, [*map(str, verdict.anomalies), *verdict.problems]
    assert verdict.operations["stored"] > 100
    assert verdict.operations["committed"] > 10
    assert sum(verdict.faults[fault.kind] for fault in faults) == len(faults)
