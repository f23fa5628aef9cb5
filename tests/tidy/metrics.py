"""docs/metrics.md, made of the table of families: `python -m tidy.metrics --write`."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from semel_broker.metrics.families import FAMILIES

PAGE = Path(__file__).parents[2] / "docs/metrics.md"

HEAD = """# Metrics and health

`semel serve` serves metrics in Prometheus' text format at `http://127.0.0.1:9404/metrics`. `metrics.listener` gives
another address, or none if it is empty. A broker that starts with an address of your own that is in use stops with one
error. If the default address is in use, for example by another broker on this machine, the broker runs without metrics,
and its log has `metrics_not_served`.

The listener has **no TLS and no authentication**. Metrics name topics, groups and transactional ids. Beyond loopback the
log has `metrics_beyond_loopback`: let only your Prometheus reach the port (a network policy, a firewall), or keep it on
loopback behind a proxy that authenticates.

```yaml
scrape_configs:
  - job_name: semel
    static_configs: [{targets: ["127.0.0.1:9404"]}]
```

`monitoring/` has rules for Prometheus (`rules.yml`) and a dashboard for Grafana (`grafana/semel.json`). With Docker
`docker compose --profile observe up` starts Prometheus on 127.0.0.1:9090 and Grafana on 127.0.0.1:3000 besides the
brokers of `docker-compose.yml`.

A scrape is made in slices of a few milliseconds, and requests of clients are answered in between. Scrapes at the same
time share one page. Series of topics, partitions and groups exist only while the topic has a log here, a transaction
holds the partition back, or the group exists here. `metrics.series.max` bounds them; `semel_metrics_dropped_series` says
how many were left out.

A fixture's broker serves metrics if its settings say so: `EphemeralBroker({"metrics.listener": "127.0.0.1:0"})` has the
port in `metrics_port`.

## Health

| path | 200 | 503 |
|---|---|---|
| `/health/live` | the event loop answers | never: there is no answer |
| `/health/ready` | the broker has a session in its cluster, and its coordinators are loaded | it starts, stops, has lost its session, or reads an internal topic; the text says which |

For Kubernetes (the recovery after a power cut blocks the event loop, so give the start time):

```yaml
startupProbe: {httpGet: {path: /health/ready, port: 9404}, periodSeconds: 5, failureThreshold: 120}
livenessProbe: {httpGet: {path: /health/live, port: 9404}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /health/ready, port: 9404}, periodSeconds: 5}
```

The kubelet asks the address of the pod: set `metrics.listener=0.0.0.0:9404`. Do not let a readiness probe take the
address of a broker out of the DNS that other brokers use (`publishNotReadyAddresses: true`).

## Metrics of clients

Clients push their own metrics to the broker if a subscription asks for them (KIP-714). librdkafka and Kafka's Java
client do, without a change of the application. Install `semel[telemetry]` on the broker. The page has a series for each
value, with the labels `client_id`, `software`, `version` and `client_instance_id`:
`org.apache.kafka.producer.request.latency.avg` is `semel_client_producer_request_latency_avg`.

A subscription is a resource of type CLIENT_METRICS with a name of your choice. It has the metrics by prefix (`*`: all), the
interval, and the clients, by regular expressions ([settings](settings.md)):

```python
from semel import Admin, ConfigResource, ConfigResourceType

subscription = {
    "metrics": "org.apache.kafka.producer.",
    "interval.ms": "60000",
    "match": "client_id=checkout-.*",
}
async with Admin(bootstrap_servers="localhost:9092") as admin:
    await admin.alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, "checkout", subscription)])
```

It takes the right AlterConfigs on the cluster; a push takes no right. A subscription ends when its settings are unset
(`None`).

- The series of all clients count for `metrics.series.max`, and one client may have 1,000. Values beyond these bounds are
  left out: `semel_telemetry_dropped_values_total` counts them, and the log has `client_metrics_dropped`. Subscribe to few
  metrics, or to few clients.
- A client that is silent for three intervals leaves the page. A broker remembers 4,096 clients.
- A push has at most `telemetry.max.bytes`, and 4 MiB decompressed. A push that decompresses to more closes its connection.
- The broker asks for counters as totals of the client. Sums and gauges are shown; other kinds of values are passed over.
- `telemetry.otlp.endpoint` names an OpenTelemetry collector that gets each push as well, as it is. While the collector
  does not answer, pushes are dropped (`client_metrics_not_forwarded` in the log, once).
- The broker offers this only while it has a receiver: the package and `metrics.listener`, or a collector.

## How some are measured

- **Errors** count each row of a response: a Produce with two refused partitions counts twice. Of arrays with more than
  1,000 rows the first 1,000 count.
- **Times of a request** are `queue`, `handle`, `wait` and `send`, one after the other. A request that is answered at once
  has no `wait`; an answer that waits for no other has no `send`.
- **Lag of a group in records** is the last stable offset minus the committed offset, without the markers and the records
  of aborted transactions in between. Each log remembers them as they are appended, replicated or replayed at a start:
  what lies before the last checkpoint of an earlier run counts as readable. Of a log with very many transactions old
  entries are merged, and the lag of a consumer that is far behind is off by a part of one entry. Offsets that
  compaction has removed count. The coordinator of the group needs a replica of the partition; the others are counted in
  `semel_group_partitions_without_lag`.
- **Lag in seconds** comes from the last stable offsets at earlier scrapes: the time since the first scrape that saw the
  record readable. It is exact up to the interval of the scrapes, and 0 at the first one.
- **Age of a transaction that holds a partition back** begins with its first batch here. Of one that was open before this
  broker led the partition it begins with the last batch, and `transactional_id` is empty: `semel txn hanging` finds it.
- **Stalls** of the event loop of 100 ms or more are logged as `event_loop_stalled`, with the request, its topic and
  partition, its size, and the line of code. `api="none"`: no request was being started.

## All metrics
"""

TAIL = """
## Runbooks

### A broker is not ready

`curl http://127.0.0.1:9404/health/ready` says why. No session: see below. A coordinator that reads: wait; that it cannot
read: the log has `transactions_not_loaded` or `groups_not_loaded` with the reason, mostly a damaged log (`semel log
check`).

### The last stable offset is stuck

`semel_lso_pinned_by` has the transactional id. `semel txn why ID` tells its state and what it waits for; `semel topic
stuck TOPIC` tells the same from the side of the partition. If its application is dead, the transaction is aborted after
its `transaction.timeout.ms`; `semel txn abort` aborts it now.

### A transaction hangs

A transaction without a coordinator, older than `transaction.max.timeout.ms`. `semel txn hanging` finds them and prints
the command that aborts one.

### Producers fence each other

Two instances use one `transactional.id` in turn. `semel txn why ID` has the ledger of its fences, with the client and the
host of each. Give each instance an id of its own.

### Markers are delayed

The outcome of transactions is decided, and a partition does not take its marker: it has no leader, or too few replicas
in sync. The log has `marker_delayed` and `markers_not_written` with the partition and the error. Repair the partition;
the markers follow by themselves.

### Partitions are offline or under-replicated

`semel cluster` shows the partitions and the brokers that are missing. Start these; a replica that does not catch up has
lines in the log of its broker. An offline partition needs a broker of its ISR, which `semel topic describe` names: start
that one first.

### The session has little margin

Each broker renews its session in etcd three times in `broker.session.timeout.ms`. Little margin means that etcd answers
late (`semel_store_request_seconds`), or that the event loop was held (`semel_event_loop_lag_seconds`). Give etcd a disk
of its own. At 0 the broker leads nothing and registers again.

### The event loop stalls

`event_loop_stalled` in the log has the request and the line of code. Large requests: lower `message.max.bytes` or let
clients send smaller batches. `where` in the garbage collector or in no request: please report it.

### Clients fail to authenticate

`semel_authentication_failures_total` and `semel_tls_handshake_failures_total` have the reasons; the log lines
`sasl_authentication_failed` and `tls_handshake_failed` have address, client id and what to do ([security](security.md)).

### The disk is full

The log has `disk_nearly_full` with the free bytes and the mark (`log.min.free.bytes`). Below the mark Produce and new
partitions are refused with KAFKA_STORAGE_ERROR; producers try again until their delivery timeout. Reads, DeleteTopics,
DeleteRecords, retention and the ends of transactions go on. Below half of the mark, offset commits, new members of
groups, InitProducerId with a transactional id and new partitions of transactions are refused, too (NOT_COORDINATOR:
clients try again), and followers leave the ISR; members may leave, and EndTxn is served. Free space: delete topics (`semel topic delete`) or records (`semel topic truncate`), or
shorten `retention.ms` or `retention.bytes`; files that are not the broker's count as well. `disk_has_room_again` ends it.

`disk_reserve_given_up`: a write found no room at all, and the file `.semel-reserve` was removed for it. It is made again
when there is room. A broker that has used up the reserve, too, ends with `disk_failed`: remove files of other programs,
or give the disk more space, then start it again.

### The disk hangs

A sync, or another call to the disk, has been waiting for `disk.hang.timeout.ms`, by default 10 s. The log has
`disk_hangs` with the path, once; `semel_disk_waiting_seconds` has the time so far. The broker goes on with all that needs
no disk: metadata, heartbeats, and reads of what the kernel has in memory. Reads that need the disk get KAFKA_STORAGE_ERROR
on Linux; elsewhere, and before the hang is noticed, one such read holds the broker until the disk goes on. Writes that came before wait until the disk goes
on; with acks=all they get REQUEST_TIMED_OUT after the time-out of their request. New writes get KAFKA_STORAGE_ERROR,
groups and transactions NOT_COORDINATOR, and clients try again. In a cluster the partitions of the broker get other leaders
within a second more, and it leaves the ISR, wherever another replica is in sync. `semel cluster` names broker, data directory
and the time, and the partitions that no other replica can lead; ElectLeaders (`semel topic elect`) says so, too.

Look at the disk and what is behind it: the kernel's log (`dmesg`), the network of a remote volume, the limits of a cloud
volume. When the disk goes on, the log has `disk_goes_on`, and everything goes on without a restart. A disk that does not:
stop the broker. It ends after at most `disk.hang.timeout.ms` with status 74, or, if the kernel cannot end the calls that
wait, with the machine. Nothing that was acknowledged is lost. With `durability=os` no write waits for the disk: the event,
the metric and the alert tell of it, and nothing is refused.

### The files of a partition cannot be used

The log has `partition_offline` with topic, partition, the reason, and what to do. The broker serves all its other
partitions; in a cluster another replica that is in sync leads, and this one leaves the ISR, also if the files fail
while the broker runs. Repair the files or restore them from a copy, then restart the broker.
`semel log check` looks at them. In a cluster, a directory that is moved away is filled from the leader.

### The audit log loses lines

Its disk is full or hangs, the broker may not write there, or a pipe is not read: the log has `audit_log_not_written`
([audit](audit.md)). With `audit.log.required` no line is lost, and requests are refused meanwhile:
`semel_audit_refused_requests_total`. Make room, repair the disk, or read the pipe; the broker goes on by itself.

### The log loses lines

The output of the broker's log is not read fast enough, or not at all: a log collector that hangs, a stopped terminal, a
full disk behind a file. The broker goes on without these lines. `log_lines_lost` in the log has their number in their
place. Let the output be read again, or write the log to a file.

### Series are left out

There are more topics and groups in use than `metrics.series.max` allows. Raise it, and mind the memory of Prometheus.
"""


def page() -> str:
    """The page."""
    parts = [HEAD]
    for section, families in groupby(FAMILIES, lambda family: family.section):
        parts.append(f"\n### {section}\n\n| name | type | labels | what it is |\n|---|---|---|---|\n")
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            parts.append(f"| `{family.name}` | {family.kind.value} | {labels} | {family.about} |\n")
    return "".join(parts) + TAIL


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
