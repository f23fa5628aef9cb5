"""The workloads of simulated clients: each kind of use for which semel makes a promise."""

from __future__ import annotations

from collections.abc import Mapping

from sim.workloads.base import ClientContext, Workload
from sim.workloads.kinds import (
    Administration,
    Compacted,
    ConsumeTransformProduce,
    GroupChurn,
    Idempotent,
    Plain,
    Retention,
    Transactional,
    TransactionGroups,
)

__all__ = ["WORKLOADS", "ClientContext", "Workload"]

WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Administration(),
        Compacted(),
        GroupChurn(),
        Idempotent(),
        ConsumeTransformProduce(),
        Plain(),
        Retention(),
        Transactional(),
        TransactionGroups(),
    )
}
