"""PURE. The metrics of a consumer, under the names of Kafka's Java client where it has them."""

from __future__ import annotations

from semel_protocol.api import API_OF
from semel_protocol.messages.k01_fetch import FetchRequest
from semel_protocol.messages.k08_offset_commit import OffsetCommitRequest
from semel_protocol.messages.k11_join_group import JoinGroupRequest
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k14_sync_group import SyncGroupRequest
from semel_protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from semel._group.consumer_group import AnyGroup
from semel._group.heartbeat import PollCalls
from semel._net.cluster import Cluster
from semel._net.metrics import Metrics, connection_metrics, latency_metrics
from semel._subscription.subscription import AssignedPartition, Subscription

FETCH, COMMIT, JOIN, SYNC = (
    API_OF[request].key for request in (FetchRequest, OffsetCommitRequest, JoinGroupRequest, SyncGroupRequest)
)
HEARTBEATS = API_OF[HeartbeatRequest].key, API_OF[ConsumerGroupHeartbeatRequest].key


def consumer_metrics(
    cluster: Cluster,
    subscription: Subscription,
    calls: PollCalls,
    group: AnyGroup | None,
    *,
    buffered_bytes: int,
    read_committed: bool,
) -> Metrics:
    """A snapshot: `consumer-metrics`, `consumer-fetch-manager-metrics`, the same for each assigned partition, and with
    a group `consumer-coordinator-metrics`.
    """
    counters, now = cluster.pool.counters, cluster.edge.monotonic()
    own = connection_metrics(cluster.pool)
    if calls.made or calls.open:
        own["last-poll-seconds-ago"] = 0.0 if calls.open else now - calls.last_at
    partitions = {
        f"consumer-fetch-manager-metrics.{partition.topic}-{partition.partition}": _partition(state, read_committed)
        for partition, state in subscription.states.items()
    }
    lags = [rows["records-lag"] for rows in partitions.values() if "records-lag" in rows]
    fetches = {
        "records-consumed-total": subscription.records_taken,
        "bytes-consumed-total": subscription.bytes_decoded,
        "buffered-bytes": buffered_bytes,
        "fetch-total": counters.count(FETCH),
        **latency_metrics("fetch-latency", counters.latency(FETCH), now),
    }
    if lags:
        fetches["records-lag-max"] = max(lags)
    found: Metrics = {"consumer-metrics": own, "consumer-fetch-manager-metrics": fetches}
    if group is not None:
        found["consumer-coordinator-metrics"] = {
            "assigned-partitions": len(subscription.states),
            "rebalance-total": group.assignments,
            "join-total": counters.count(JOIN),
            "sync-total": counters.count(SYNC),
            "heartbeat-total": counters.count(*HEARTBEATS),
            "commit-total": counters.count(COMMIT),
            **latency_metrics("commit-latency", counters.latency(COMMIT), now),
        }
    return found | partitions


def _partition(state: AssignedPartition, read_committed: bool) -> dict[str, float]:
    """Lag and lead, once they are known. The lag goes to the end that this consumer can read."""
    found: dict[str, float] = {}
    end = state.last_stable_offset if read_committed else state.high_watermark
    if state.position is not None and end is not None:
        found["records-lag"] = max(0, end - state.position)
    if state.position is not None and state.log_start_offset is not None:
        found["records-lead"] = max(0, state.position - state.log_start_offset)
    return found
