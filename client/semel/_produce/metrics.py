"""PURE. The metrics of a producer, under the names of Kafka's Java client where it has them."""

from __future__ import annotations

from semel_protocol.api import API_OF
from semel_protocol.messages.k00_produce import ProduceRequest

from semel._net.cluster import Cluster
from semel._net.metrics import Metrics, connection_metrics, latency_metrics
from semel._produce.accumulator import BufferMemory
from semel._produce.counters import ProducerCounters, ProducerTransactionCounters, TopicCounters

PRODUCE = API_OF[ProduceRequest].key


def producer_metrics(
    cluster: Cluster, memory: BufferMemory, counters: ProducerCounters, *, is_transactional: bool
) -> Metrics:
    """A snapshot: the group `producer-metrics`, and `producer-topic-metrics.<topic>` for each topic in use."""
    total = TopicCounters()
    for topic in counters.topics.values():
        for field in TopicCounters.__struct_fields__:
            setattr(total, field, getattr(total, field) + getattr(topic, field))
    latency = cluster.pool.counters.latency(PRODUCE)
    own = connection_metrics(cluster.pool) | {
        **_records(total),
        "batch-send-total": total.batches_sent,
        "batch-size-total": total.bytes_sent,
        "batch-split-total": total.batches_split,
        "produce-total": latency.count,
        **latency_metrics("request-latency", latency, cluster.edge.monotonic()),
        "buffer-total-bytes": memory.bytes_max,
        "buffer-available-bytes": memory.free_bytes,
        "waiting-threads": memory.waiters,
    }
    if is_transactional:
        own |= _transactions(counters.transactions)
    topics = {
        f"producer-topic-metrics.{name}": _records(topic) | {"byte-total": topic.bytes_sent}
        for name, topic in counters.topics.items()
    }
    return {"producer-metrics": own, **topics}


def _records(topic: TopicCounters) -> dict[str, float]:
    return {
        "record-send-total": topic.records_sent,
        "record-stored-total": topic.records_stored,
        "record-retry-total": topic.records_retried,
        "record-error-total": topic.records_failed,
    }


def _transactions(counters: ProducerTransactionCounters) -> dict[str, float]:
    return {
        "txn-begin-total": counters.begun,
        "txn-commit-total": counters.committed,
        "txn-abort-total": counters.aborted,
        "txn-prepare-total": counters.prepared,
        **{f"txn-{call}-time-ns-total": round(seconds * 1e9) for call, seconds in counters.seconds.items()},
    }
