"""PURE: the table of all metrics: name, type, labels and meaning. docs/metrics.md shows it on the site."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class MetricType(Enum):
    """The types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


NAMED: Final = ("topic", "group")
"""Labels with as many values as users like: their series are bounded by `metrics.series.max`."""


class Family(msgspec.Struct, frozen=True):
    """All series of one name. `about`: one sentence, the help text. `is_bounded`: its series count for
    `metrics.series.max`."""

    name: str
    kind: MetricType
    about: str
    labels: tuple[str, ...] = ()
    section: str = ""
    is_bounded: bool = False


FAMILIES: Final[list[Family]] = []
"""All families, by section."""


class _Section:
    def __init__(self, name: str) -> None:
        self._name = name

    def counter(self, name: str, about: str, *labels: str) -> Family:
        return self._add(name, MetricType.COUNTER, about, labels)

    def gauge(self, name: str, about: str, *labels: str) -> Family:
        return self._add(name, MetricType.GAUGE, about, labels)

    def histogram(self, name: str, about: str, *labels: str) -> Family:
        return self._add(name, MetricType.HISTOGRAM, about, labels)

    def _add(self, name: str, kind: MetricType, about: str, labels: tuple[str, ...]) -> Family:
        is_bounded = not set(NAMED).isdisjoint(labels)
        family = Family(f"semel_{name}", kind, about, labels, self._name, is_bounded)
        FAMILIES.append(family)
        return family


_s = _Section("Requests")
REQUESTS = _s.counter("requests_total", "Requests that were started; source: client or broker.", "source", "api")
REQUEST_ERRORS = _s.counter(
    "request_errors_total", "Error codes in responses, each partition or row by itself.", "source", "api", "code"
)
REQUEST_BYTES = _s.counter("request_bytes_total", "Bytes of requests.", "source", "api")
RESPONSE_BYTES = _s.counter("response_bytes_total", "Bytes of responses.", "source", "api")
QUEUE = _s.histogram("request_queue_seconds", "Time from the last byte of a request to its start.", "source", "api")
HANDLE = _s.histogram(
    "request_handle_seconds", "Work of the event loop until a request is answered or waits.", "source", "api"
)
WAIT = _s.histogram(
    "request_wait_seconds", "Time from there to the answer, of requests that wait (sync, replicas).", "source", "api"
)
SEND = _s.histogram(
    "request_send_seconds", "Time that an answer waited for the answers of earlier requests.", "source", "api"
)
CONNECTIONS = _s.gauge(
    "connections", "Open connections, by what the client says it is (KIP-511).", "listener", "software", "version"
)
CONNECTIONS_OPENED = _s.counter("connections_opened_total", "Connections that were accepted.", "listener")
CONNECTIONS_CLOSED = _s.counter("connections_closed_total", "Connections that have ended.", "listener", "reason")

_s = _Section("Log")
RECORDS_APPENDED = _s.counter("log_records_appended_total", "Records appended here, by leader or follower.", "topic")
BATCHES_APPENDED = _s.counter("log_batches_appended_total", "Batches appended here, by leader or follower.", "topic")
BYTES_APPENDED = _s.counter("log_bytes_appended_total", "Bytes appended here, by leader or follower.", "topic")
DUPLICATES = _s.counter(
    "log_duplicates_total", "Batches and markers that a client or broker sent again; not appended.", "topic"
)
REFUSED_BATCHES = _s.counter("log_refused_batches_total", "Batches of producers that were not appended.", "code")
LOG_PARTITIONS = _s.gauge("log_partitions", "Replicas on this broker that have a log.", "topic")
LOG_SEGMENTS = _s.gauge("log_segments", "Segments on this broker.", "topic")
LOG_SIZE = _s.gauge("log_size_bytes", "Bytes of all segments on this broker.", "topic")
SYNC_SECONDS = _s.histogram("log_sync_seconds", "Time of one sync of the disk (fdatasync or syncfs).")
SYNC_BATCHES = _s.histogram("log_sync_batches", "Batches of one log that one sync made durable.")
DISK_FREE = _s.gauge("disk_free_bytes", "Free bytes of the disk with the data directory.")
DISK_WRITES_REFUSED = _s.gauge(
    "disk_writes_refused",
    "1 while clients' writes are refused for lack of free bytes (log.min.free.bytes), else 0.",
)
DISK_WAITING = _s.gauge(
    "disk_waiting_seconds",
    "Time that the oldest sync, or other call that waits for the disk, has been waiting; 0: none waits.",
)
DISK_HANGS = _s.gauge("disk_hangs", "1 while a call has been waiting for disk.hang.timeout.ms, else 0.")
DISK_MIN_FREE = _s.gauge("disk_min_free_bytes", "Free bytes below which clients' writes are refused.")
PARTITIONS_UNUSABLE = _s.gauge("log_partitions_unusable", "Replicas on this broker whose files cannot be used.")
RECOVERY_SECONDS = _s.gauge("log_recovery_seconds", "Time in which the start opened and recovered all logs.")

_s = _Section("Transactions")
BEGUN = _s.counter("transactions_begun_total", "Transactions whose first partition or group was added.")
COMMITTED = _s.counter("transactions_committed_total", "Transactions that were decided as commit.")
ABORTED = _s.counter(
    "transactions_aborted_total", "Transactions that were decided as abort; cause: client, or as of fences.", "cause"
)
RESUMED = _s.counter("transactions_resumed_total", "Decided transactions that a new coordinator completes.")
TXN_SECONDS = _s.histogram("transaction_seconds", "Time from the begin of a transaction to its decision.")
FENCES = _s.counter("transaction_fences_total", "Fenced producers, by the cause in the fence ledger.", "cause")
TRANSACTIONAL_IDS = _s.gauge("transactional_ids", "Transactional ids that this broker coordinates.")
OPEN = _s.gauge("transactions_open", "Open transactions that this broker coordinates.")
OLDEST = _s.gauge("transaction_oldest_seconds", "Age of the oldest of them; 0 without one.")
LSO_LAG_RECORDS = _s.gauge(
    "lso_lag_records",
    "Offsets between the last stable offset and the high watermark, of led partitions that a transaction holds back.",
    "topic",
    "partition",
)
LSO_LAG_SECONDS = _s.gauge(
    "lso_lag_seconds", "Age of the transaction that holds the last stable offset back.", "topic", "partition"
)
LSO_PINNED_BY = _s.gauge(
    "lso_pinned_by",
    "1: this id holds the last stable offset back.",
    "topic",
    "partition",
    "transactional_id",
)
MARKERS_WAITING = _s.gauge("transaction_markers_waiting", "Markers of decided transactions that are not written yet.")
MARKERS_OLDEST = _s.gauge("transaction_markers_oldest_seconds", "Time since the decision of the oldest of them.")
MARKER_RETRIES = _s.counter("transaction_marker_retries_total", "Attempts to write a marker that failed.")
SHARDS = _s.gauge(
    "coordinator_shards", "Partitions of internal topics that this broker leads, by stage.", "coordinator", "stage"
)
SHARD_LOAD = _s.gauge(
    "coordinator_load_seconds", "The longest load of a partition that this broker leads now.", "coordinator"
)

_s = _Section("Groups")
GROUPS = _s.gauge("groups", "Consumer groups that this broker coordinates, by state.", "state")
GROUP_MEMBERS = _s.gauge("group_members", "Members of the group.", "group")
GROUP_GENERATION = _s.gauge("group_generation", "Generation of the group; its epoch in the consumer protocol.", "group")
REBALANCES = _s.counter("group_rebalances_total", "Rebalances that began, by the cause of the first change.", "cause")
GROUP_LAG = _s.gauge(
    "group_lag_records",
    "Records that a read_committed consumer still gets, summed over partitions.",
    "group",
    "topic",
)
GROUP_LAG_SECONDS = _s.gauge(
    "group_lag_seconds", "Time since the oldest of these records became readable; the largest.", "group", "topic"
)
GROUP_UNKNOWN_LAG = _s.gauge(
    "group_partitions_without_lag", "Partitions with committed offsets of which this broker has no replica."
)

_s = _Section("Cluster")
LEADERS = _s.gauge("partitions_led", "Partitions that this broker leads.")
REPLICAS = _s.gauge("partitions_replicas", "Replicas that this broker has.")
ISR_SIZES = _s.gauge("partitions_by_isr_size", "Partitions that this broker leads, by replicas in sync.", "in_sync")
UNDER_REPLICATED = _s.gauge("partitions_under_replicated", "Led partitions with a replica that is not in sync.")
UNDER_MIN_ISR = _s.gauge("partitions_under_min_isr", "Led partitions with fewer in sync than min.insync.replicas.")
OFFLINE = _s.gauge("partitions_offline", "Partitions of the whole cluster without a live leader.")
BROKERS = _s.gauge("brokers", "Live brokers of the cluster, as this one knows it.")
CONTROLLER = _s.gauge("controller", "1: this broker is the controller.")
SESSION_MARGIN = _s.gauge(
    "session_margin_seconds", "Time left until this broker stops leading unless its session is renewed; 0: lost."
)
STORE_SECONDS = _s.histogram("store_request_seconds", "Time of an answered request to the store (etcd).", "operation")
STORE_FAILURES = _s.counter("store_failures_total", "Requests to the store without an answer.", "operation")

_s = _Section("Security")
AUTHENTICATIONS = _s.counter("authentications_total", "Clients that authenticated by SASL.", "listener", "mechanism")
AUTHENTICATION_FAILURES = _s.counter(
    "authentication_failures_total", "Clients that failed to authenticate by SASL.", "listener", "mechanism", "reason"
)
HANDSHAKE_FAILURES = _s.counter("tls_handshake_failures_total", "TLS handshakes that failed.", "listener", "reason")
REFUSALS = _s.counter(
    "authorization_refusals_total", "Operations that the authorizer refused.", "operation", "resource"
)
THROTTLES = _s.counter("throttles_total", "Requests or connections that a quota delayed.", "quota")
THROTTLE_SECONDS = _s.counter("throttle_seconds_total", "Time of these delays.", "quota")
AUDIT_LOST = _s.counter("audit_lines_lost_total", "Lines of the audit log that could not be written.")
AUDIT_REFUSED = _s.counter(
    "audit_refused_requests_total", "Requests refused because the audit log could not be written (audit.log.required)."
)

_s = _Section("Clients")
TELEMETRY_INSTANCES = _s.gauge("telemetry_client_instances", "Clients that ask for subscriptions or push (KIP-714).")
TELEMETRY_PUSHES = _s.counter("telemetry_pushes_total", "Pushes of metrics that were accepted.")
TELEMETRY_BYTES = _s.counter("telemetry_push_bytes_total", "Bytes of these pushes, compressed.")
TELEMETRY_REFUSED = _s.counter("telemetry_refusals_total", "Refused requests of clients with metrics.", "code")
TELEMETRY_DROPPED = _s.counter(
    "telemetry_dropped_values_total", "Pushed values that were left out because there are too many series."
)
TELEMETRY_EVICTED = _s.counter(
    "telemetry_evicted_instances_total", "Clients whose metrics were removed because there are too many clients."
)
TELEMETRY_FORWARDED = _s.counter("telemetry_forwarded_total", "Pushes that the collector took.")
TELEMETRY_NOT_FORWARDED = _s.counter("telemetry_not_forwarded_total", "Pushes that did not reach the collector.")

_s = _Section("Process")
BUILD = _s.gauge("build_info", "1, with the version of semel and the id of the broker.", "version", "node_id")
READY = _s.gauge("ready", "1: as /health/ready.")
CPU = _s.counter("process_cpu_seconds_total", "CPU time of the process.", "mode")
MEMORY = _s.gauge("process_resident_memory_bytes", "Memory of the process.")
OPEN_FILES = _s.gauge("process_open_files", "Open descriptors of the process.")
START_TIME = _s.gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.")
LOOP_LAG = _s.histogram("event_loop_lag_seconds", "How late a timer of the event loop ran, 20 times a second.")
STALLS = _s.counter("event_loop_stalls_total", "Times that something held the event loop for 100 ms or more.", "api")
LONGEST_STALL = _s.gauge("event_loop_longest_stall_seconds", "The longest of them since the start.", "api")
LOG_LOST = _s.counter("log_lines_lost_total", "Lines of the log that could not be written: its output was not read.")
GC_COLLECTIONS = _s.counter("gc_collections_total", "Runs of Python's garbage collector.", "generation")
GC_SECONDS = _s.histogram("gc_seconds", "Time of its full runs (generation 2).")
DROPPED = _s.gauge("metrics_dropped_series", "Series that the last scrape left out for metrics.series.max.")
SCRAPE_SECONDS = _s.gauge("metrics_scrape_seconds", "Time in which the scrape before this one was made.")
