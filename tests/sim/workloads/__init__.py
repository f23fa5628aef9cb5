"""The workloads of simulated clients: each kind of use for which semel makes a promise."""

from __future__ import annotations

from collections.abc import Mapping

from sim.workloads.base import ClientContext, Workload
from sim.workloads.kinds import (
    Administration,
    Compacted,
    ConsumerProtocol,
    ConsumeTransformProduce,
    GroupChurn,
    Idempotent,
    Plain,
    Retention,
    Transactional,
    TransactionGroups,
)

__all__ = ["ALWAYS_DRAWN", "CONSUMERS", "WORKLOADS", "ClientContext", "Workload"]

WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Administration(),
        Compacted(),
        ConsumerProtocol(),
        GroupChurn(),
        Idempotent(),
        ConsumeTransformProduce(),
        Plain(),
        Retention(),
        Transactional(),
        TransactionGroups(),
    )
}
CONSUMERS = ConsumerProtocol.name
"""The workload that a share of the seeds gets in addition (`plan.with_consumers`)."""
ALWAYS_DRAWN = tuple(name for name in WORKLOADS if name != CONSUMERS)
"""The workloads of which each seed gets one or two."""
