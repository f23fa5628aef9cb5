"""PURE: formats the rows of a dump as plain text lines, JSON lines, or styled lines for a terminal."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.text import Text
from semel_protocol.visible import visible, visible_json

from semel_storage.dump.rows import DumpRow, RowKind

RECORD_INDENT = "| "
STYLE_OF = {RowKind.BATCH: "bold cyan", RowKind.RECORD: "", RowKind.ENTRY: "", RowKind.PROBLEM: "bold red"}
NO_PRODUCER = -1


def plain_line(row: DumpRow) -> str:
    """`name: value name: value`, as Kafka's dump tool prints; records are indented by `| `."""
    line = " ".join(f"{name}: {visible(_plain(value))}" for name, value in row.facts.items())
    return RECORD_INDENT + line if row.kind is RowKind.RECORD else line


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return visible_json(json.dumps(value, ensure_ascii=False))
    return "null" if value is None else str(value)


def json_line(row: DumpRow) -> str:
    """One JSON object; `kind` is the kind of the row."""
    return visible_json(json.dumps({"kind": row.kind.value, **row.facts}, ensure_ascii=False))


def styled_line(row: DumpRow) -> Text:
    """The row for a terminal: times as dates, without default values."""
    if row.kind is RowKind.BATCH:
        return _styled_batch(row.facts)
    if row.kind is RowKind.RECORD:
        return _styled_record(row.facts)
    if row.kind is RowKind.PROBLEM:
        facts = {name: value for name, value in row.facts.items() if name != "problem"}
        return Text().append(f"✗ {visible(str(row.facts['problem']))}  ", STYLE_OF[row.kind]).append_text(_pairs(facts))
    return _pairs(row.facts)


def _styled_batch(facts: Mapping[str, Any]) -> Text:
    text = Text()
    text.append(f"{facts['baseOffset']}..{facts['lastOffset']}", STYLE_OF[RowKind.BATCH])
    text.append(f"  {facts['count']} records, {facts['size']} bytes at {facts['position']}")
    text.append(f"  {facts['compresscodec']}", "magenta" if facts["compresscodec"] != "none" else "dim")
    text.append(f"  {_time(facts)}", "dim")
    if facts["producerId"] != NO_PRODUCER:
        text.append(f"  producer {facts['producerId']}/{facts['producerEpoch']}", "green")
        if facts["baseSequence"] >= 0:
            text.append(f" seq {facts['baseSequence']}..{facts['lastSequence']}", "green")
    if facts["isControl"] or facts["isTransactional"]:
        text.append("  control" if facts["isControl"] else "  transactional", "yellow")
    if "deleteHorizonMs" in facts:
        text.append(f"  tombstones until {when(facts['deleteHorizonMs'])}", "dim")
    text.append(f"  epoch {facts['partitionLeaderEpoch']}", "dim")
    if not facts["isvalid"]:
        text.append("  CRC wrong", STYLE_OF[RowKind.PROBLEM])
    return text


def _styled_record(facts: Mapping[str, Any]) -> Text:
    text = Text().append(RECORD_INDENT, "dim")
    text.append(f"{facts['offset']:>8} ", "cyan").append(f"{_time(facts)}  ", "dim")
    if "endTxnMarker" in facts:
        marker = str(facts["endTxnMarker"])
        text.append(marker, "bold green" if marker == "COMMIT" else "bold red")
        return text.append(f"  coordinator epoch {facts['coordinatorEpoch']}", "dim")
    if "payload" in facts:
        text.append(visible(_plain(facts["key"])), "green").append(" → ", "dim")
        payload = facts["payload"]
        text.append("tombstone" if payload is None else visible(_plain(payload)), "yellow" if payload is None else "")
    else:
        text.append(f"key {facts.get('keySize')} value {facts.get('valueSize')} bytes")
    if facts.get("headers"):
        text.append(f"  {_plain(facts['headers'])}", "dim")
    return text


def _time(facts: Mapping[str, Any]) -> str:
    return when(facts["LogAppendTime"] if "LogAppendTime" in facts else facts["CreateTime"])


def _pairs(facts: Mapping[str, Any]) -> Text:
    text = Text()
    for name, value in facts.items():
        text.append(f"{name} ", "dim").append(f"{visible(_plain(value))}  ")
    return text


def when(timestamp_ms: int) -> str:
    """A timestamp in UTC to the millisecond; as a number if it is negative or out of range."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return (
        str(timestamp_ms) if timestamp_ms < 0 else moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
    )
