"""PURE: whether a broker is ready for clients, and if not, why."""

from __future__ import annotations

from semel_broker.coordination.shards import Stage
from semel_broker.node import Node


def not_ready(node: Node | None) -> str:
    """The reason why clients should use other brokers now; empty: the broker is ready. None: it starts."""
    if node is None:
        return "the broker starts"
    if node.is_stopping:
        return "the broker stops"
    if not node.registration.is_valid():
        return "the broker has no session in its cluster: see the log for session_lost and store_unavailable"
    for coordinator in (node.broker.groups, node.broker.transactions):
        for shard in coordinator.shards.all():
            if shard.stage is Stage.LOADING:
                return f"the coordinator of {shard.kind} reads {shard.partition.topic}-{shard.index}"
            if shard.stage is Stage.FAILED:
                return f"the coordinator of {shard.kind} cannot read {shard.partition.topic}-{shard.index}: see the log"
    return ""
