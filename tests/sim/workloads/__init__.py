"""The workloads of simulated clients: each kind of use for which semel makes a promise."""

from __future__ import annotations

from collections.abc import Mapping

from sim.workloads.base import ClientContext, Workload
from sim.workloads.kinds import (
    AdministrationWorkload,
    CompactedWorkload,
    ConsumerChurn,
    ConsumerPipeline,
    ConsumerProtocolWorkload,
    ConsumeTransformProduce,
    GroupChurn,
    Idempotent,
    PlainWorkload,
    Renewal,
    Retention,
    Transactional,
    TransactionGroupsWorkload,
)

__all__ = [
    "ALWAYS_DRAWN",
    "CONSUMERS",
    "CONSUMER_CHURN",
    "CONSUMER_PIPELINE",
    "RENEWAL",
    "WITH_CONSUMERS",
    "WORKLOADS",
    "ClientContext",
    "Workload",
]

WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        AdministrationWorkload(),
        CompactedWorkload(),
        ConsumerChurn(),
        ConsumerPipeline(),
        ConsumerProtocolWorkload(),
        GroupChurn(),
        Idempotent(),
        ConsumeTransformProduce(),
        PlainWorkload(),
        Renewal(),
        Retention(),
        Transactional(),
        TransactionGroupsWorkload(),
    )
}
CONSUMERS = ConsumerProtocolWorkload.name
CONSUMER_PIPELINE = ConsumerPipeline.name
CONSUMER_CHURN = ConsumerChurn.name
RENEWAL = Renewal.name
WITH_CONSUMERS = (CONSUMERS, CONSUMER_PIPELINE, CONSUMER_CHURN, RENEWAL)
"""The workloads with the consumer protocol. A share of the seeds gets one of them in addition (`plan.draw_consumers`).
"""
ALWAYS_DRAWN = tuple(name for name in WORKLOADS if name not in WITH_CONSUMERS)
"""The workloads of which each seed gets one or two."""
