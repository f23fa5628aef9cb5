"""PURE: one frame of `semel top`, made of two samples: as plain types for JSON, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semel_protocol.tables import Table

from semel._texts import duration, iso
from semel.cli.top.sample import Sample
from semel.diagnose import OpenTransaction, Verdict

ROWS = 10
"""Rows of each table; JSON has all."""
Facts = dict[str, Any]


def facts_of(before: Sample, now: Sample) -> Facts:
    """The frame. Rates are of the time between the samples; the rows that matter most come first."""
    return {
        "at": iso(now.now_ms),
        "at_ms": now.now_ms,
        "cluster_id": now.cluster.cluster_id,
        "interval_ms": round((now.at - before.at) * 1000),
        "brokers": _brokers(before, now),
        "topics": _topics(before, now),
        "transactions": _transactions(now),
        "held_back": _held_back(now),
        "groups": [
            {"group": each.name, "state": each.state, "members": each.members, "lag": each.lag}
            for each in sorted(now.groups, key=lambda each: (-(each.lag or 0), each.name))
        ],
        "missing": dict(now.missing),
    }


def _moved(before: Sample, now: Sample, places: Sequence[Any]) -> float | None:
    """Record a second that were appended to these partitions; None when no end is known at both times."""
    seconds = now.at - before.at
    known = [at for at in places if at in before.ends and at in now.ends]
    if not known or seconds <= 0:
        return None
    # The end of a topic that was deleted and created again goes back.
    return sum(max(0, now.ends[at] - before.ends[at]) for at in known) / seconds


def _brokers(before: Sample, now: Sample) -> list[Facts]:
    led: dict[int, list[Any]] = {}
    for each in now.partitions:
        led.setdefault(each.leader, []).append((each.topic, each.partition))
    return [
        {
            "broker": node_id,
            "address": f"{broker.host}:{broker.port}",
            "controller": node_id == now.cluster.controller_id,
            "leads": len(led.get(node_id, ())),
            "records_per_second": _rate(_moved(before, now, led.get(node_id, ()))),
        }
        for node_id, broker in sorted(now.cluster.brokers.items())
    ]


def _topics(before: Sample, now: Sample) -> list[Facts]:
    places: dict[str, list[Any]] = {}
    leaderless: dict[str, int] = {}
    for each in now.partitions:
        places.setdefault(each.topic, []).append((each.topic, each.partition))
        leaderless[each.topic] = leaderless.get(each.topic, 0) + (each.leader not in now.cluster.brokers)
    rows = [
        {
            "topic": topic,
            "partitions": len(own),
            "without_leader": leaderless[topic],
            "records_per_second": _rate(_moved(before, now, own)),
            "end_offsets": sum(now.ends.get(at, 0) for at in own),
        }
        for topic, own in places.items()
    ]
    return sorted(rows, key=lambda row: (-(row["records_per_second"] or 0), -row["end_offsets"], row["topic"]))


def _transactions(now: Sample) -> list[Facts]:
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "open_since": iso(each.start_time_ms),
            "open_for_ms": None if each.start_time_ms is None else max(0, now.now_ms - each.start_time_ms),
            "partitions": len(each.partitions),
            "opened_by": each.owner or None,
        }
        for each in now.transactions
    ]
    return sorted(rows, key=lambda row: -(row["open_for_ms"] or 0))


def _held_back(now: Sample) -> list[Facts]:
    """The partitions whose last stable offset is held back, and the first open transaction in each."""
    first: dict[Any, OpenTransaction] = {}
    for pin in now.pins:
        first.setdefault(pin.partition, pin)
    rows = []
    for at, count in now.held_back.items():
        holder = first.get(at)
        rows.append(
            {
                "topic": at.topic,
                "partition": at.partition,
                "offsets": count,
                "last_stable_offset": now.stable[at],
                "held_by": None if holder is None else _holder(holder),
                "verdict": None if holder is None else holder.verdict.value,
            }
        )
    return sorted(rows, key=lambda row: (-row["offsets"], row["topic"], row["partition"]))


def _holder(pin: OpenTransaction) -> str:
    if pin.transaction is None or pin.verdict is Verdict.HANGING:
        return f"producer {pin.producer.producer_id}"
    return pin.transaction.transactional_id


def _rate(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def tables_of(facts: Mapping[str, Any], rows: int = ROWS) -> list[Table]:
    """The frame for a terminal. facts: as `facts_of`. rows: of each table at most."""
    brokers = Table(
        f"Cluster {facts['cluster_id'] or ''}  {facts['at']}",
        *("broker", "role", "leads", "records/s", "address"),
        right=("leads", "records/s"),
        below=("address",),
    )
    for row in facts["brokers"]:
        role = "controller" if row["controller"] else None
        brokers.add_row(str(row["broker"]), role, row["leads"], _shown(row["records_per_second"]), row["address"])
    topics = Table(
        "Topics",
        "topic",
        "records/s",
        "partitions",
        "no leader",
        "end",
        right=("records/s", "partitions", "no leader", "end"),
    )
    for row in facts["topics"][:rows]:
        topics.add_row(
            row["topic"],
            _shown(row["records_per_second"]),
            row["partitions"],
            row["without_leader"] or None,
            row["end_offsets"],
        )
    groups = Table("Groups", "group", "lag", "members", "state", right=("lag", "members"), below=("state",))
    for row in facts["groups"][:rows]:
        groups.add_row(row["group"], row["lag"], row["members"], row["state"])
    tables = [topics, *_transaction_tables(facts, rows), groups]
    return [brokers, *(table for table in tables if table.added)]


def _transaction_tables(facts: Mapping[str, Any], rows: int) -> list[Table]:
    found = []
    if facts["transactions"]:
        columns = ("transactional id", "open for", "partitions", "state", "opened by")
        table = Table("Open transactions", *columns, right=("partitions",), below=("opened by", "state"))
        for row in facts["transactions"][:rows]:
            age = None if row["open_for_ms"] is None else duration(row["open_for_ms"])
            table.add_row(row["transactional_id"], age, row["partitions"], row["state"], row["opened_by"])
        found.append(table)
    if facts["held_back"]:
        table = Table(
            "Held back from read_committed", "partition", "offsets", "by", "verdict", right=("offsets",), below=("by",)
        )
        for row in facts["held_back"][:rows]:
            table.add_row(f"{row['topic']}-{row['partition']}", row["offsets"], row["held_by"], row["verdict"])
        found.append(table)
    return found


def notes_of(facts: Mapping[str, Any], rows: int = ROWS) -> list[str]:
    """The rows that the tables leave out, and the reason."""
    counts = {name: len(facts[name]) - rows for name in ("topics", "transactions", "held_back", "groups")}
    words = {
        "topics": "topics",
        "transactions": "transactions",
        "held_back": "partitions held back",
        "groups": "groups",
    }
    more = [f"{count:,} more {words[name]}" for name, count in counts.items() if count > 0]
    lines = [f"Not shown: {', '.join(more)}; --output json has all."] if more else []
    return lines + [f"No {part}: {why}" for part, why in facts["missing"].items()]


def _shown(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:,.1f}"
