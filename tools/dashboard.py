"""Makes the Grafana dashboard `deploy/monitoring/grafana/semel.json` of a table of panels: `python -m tools.dashboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[1] / "deploy/monitoring/grafana/semel.json"
COLUMNS, WIDTH, HEIGHT = 3, 8, 7
SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """One graph. `queries`: PromQL and the legend of its series."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def rate(name: str, by: str) -> str:
    return f'sum by ({by}) (rate({name}{{instance=~"$instance"}}[$__rate_interval]))'


def quantile(name: str, by: str, q: float = 0.99) -> str:
    buckets = f'sum by (le, {by}) (rate({name}_bucket{{instance=~"$instance"}}[$__rate_interval]))'
    return f"histogram_quantile({q}, {buckets})"


def now(name: str, by: str = "instance", how: str = "sum") -> str:
    return f'{how} by ({by}) ({name}{{instance=~"$instance"}})'


ROWS: dict[str, list[Panel]] = {
    "Health": [
        Panel("Ready", "short", ((now("semel_ready"), "{{instance}}"),)),
        Panel(
            "Partitions that need attention",
            "short",
            (
                (now("semel_partitions_under_replicated"), "under-replicated {{instance}}"),
                (now("semel_partitions_under_min_isr"), "under min.insync.replicas {{instance}}"),
                ("max(semel_partitions_offline)", "offline"),
            ),
        ),
        Panel("Session margin", "s", ((now("semel_session_margin_seconds", how="min"), "{{instance}}"),)),
        Panel("Event loop, lag p99", "s", ((quantile("semel_event_loop_lag_seconds", "instance"), "{{instance}}"),)),
        Panel(
            "Event loop, stalls",
            "short",
            ((rate("semel_event_loop_stalls_total", "instance, api"), "{{instance}} {{api}}"),),
        ),
        Panel("CPU", "percentunit", ((rate("semel_process_cpu_seconds_total", "instance"), "{{instance}}"),)),
        Panel("Memory", "bytes", ((now("semel_process_resident_memory_bytes"), "{{instance}}"),)),
        Panel(
            "Connections by software",
            "short",
            ((now("semel_connections", "software, version"), "{{software}} {{version}}"),),
        ),
        Panel("Store, request p99", "s", ((quantile("semel_store_request_seconds", "operation"), "{{operation}}"),)),
    ],
    "Traffic": [
        Panel("Requests", "reqps", ((rate("semel_requests_total", "source, api"), "{{source}} {{api}}"),)),
        Panel("Errors", "reqps", ((rate("semel_request_errors_total", "api, code"), "{{api}} {{code}}"),)),
        Panel(
            "Bytes",
            "Bps",
            (
                (rate("semel_request_bytes_total", "instance"), "in {{instance}}"),
                (rate("semel_response_bytes_total", "instance"), "out {{instance}}"),
            ),
        ),
        Panel(
            "Records appended",
            "cps",
            ((f"topk(10, {rate('semel_log_records_appended_total', 'topic')})", "{{topic}}"),),
        ),
        Panel("Largest topics", "bytes", ((f"topk(10, {now('semel_log_size_bytes', 'topic')})", "{{topic}}"),)),
        Panel("Disk sync p99", "s", ((quantile("semel_log_sync_seconds", "instance"), "{{instance}}"),)),
        Panel(
            "Produce, wait p99", "s", ((quantile("semel_request_wait_seconds", "source, api"), "{{source}} {{api}}"),)
        ),
        Panel("Handle p99", "s", ((quantile("semel_request_handle_seconds", "source, api"), "{{source}} {{api}}"),)),
        Panel("Queue p99", "s", ((quantile("semel_request_queue_seconds", "source, api"), "{{source}} {{api}}"),)),
    ],
    "Transactions": [
        Panel(
            "Ends",
            "ops",
            (
                (rate("semel_transactions_committed_total", "instance"), "committed {{instance}}"),
                (rate("semel_transactions_aborted_total", "cause"), "aborted: {{cause}}"),
            ),
        ),
        Panel("Open", "short", ((now("semel_transactions_open"), "{{instance}}"),)),
        Panel("Oldest", "s", ((now("semel_transaction_oldest_seconds", how="max"), "{{instance}}"),)),
        Panel(
            "Last stable offset held back",
            "s",
            ((f"topk(10, {now('semel_lso_lag_seconds', 'topic, partition', 'max')})", "{{topic}}-{{partition}}"),),
        ),
        Panel("By", "short", ((now("semel_lso_pinned_by", "transactional_id"), "{{transactional_id}}"),)),
        Panel("Fences", "ops", ((rate("semel_transaction_fences_total", "cause"), "{{cause}}"),)),
        Panel("Markers that wait", "short", ((now("semel_transaction_markers_waiting"), "{{instance}}"),)),
        Panel("Time to the decision p99", "s", ((quantile("semel_transaction_seconds", "instance"), "{{instance}}"),)),
        Panel(
            "Coordinators",
            "short",
            ((now("semel_coordinator_shards", "coordinator, stage"), "{{coordinator}} {{stage}}"),),
        ),
    ],
    "Groups": [
        Panel(
            "Lag in records",
            "short",
            ((f"topk(10, {now('semel_group_lag_records', 'group, topic')})", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Lag in time",
            "s",
            ((f"topk(10, {now('semel_group_lag_seconds', 'group, topic', 'max')})", "{{group}} {{topic}}"),),
        ),
        Panel("Rebalances", "ops", ((rate("semel_group_rebalances_total", "cause"), "{{cause}}"),)),
    ],
    "Security": [
        Panel(
            "Authentications",
            "ops",
            ((rate("semel_authentications_total", "listener, mechanism"), "{{listener}} {{mechanism}}"),),
        ),
        Panel(
            "Failures",
            "ops",
            (
                (rate("semel_authentication_failures_total", "listener, reason"), "{{listener}} {{reason}}"),
                (rate("semel_tls_handshake_failures_total", "listener, reason"), "{{listener}} TLS {{reason}}"),
            ),
        ),
        Panel(
            "Refusals and throttles",
            "ops",
            (
                (rate("semel_authorization_refusals_total", "operation, resource"), "{{operation}} {{resource}}"),
                (rate("semel_throttles_total", "quota"), "{{quota}}"),
            ),
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "gridPos": _place(0, top, 24, 1), "panels": []}
        )
        top += 1
        for at, panel in enumerate(row):
            place = _place(at % COLUMNS * WIDTH, top + at // COLUMNS * HEIGHT, WIDTH, HEIGHT)
            panels.append(_graph(len(panels) + 1, panel, place))
        top += -(-len(row) // COLUMNS) * HEIGHT
    return {
        "uid": "semel",
        "title": "semel",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"},
                {
                    "name": "instance",
                    "type": "query",
                    "label": "Broker",
                    "datasource": SOURCE,
                    "query": {"query": "label_values(semel_build_info, instance)", "refId": "instance"},
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "refresh": 2,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _graph(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": SOURCE}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
