"""Consumer groups: the list with lag, and one group: members, progress, the records ahead, and why it is stuck."""

from __future__ import annotations

import re
from typing import Any

from semel import Admin, TopicPartition
from semel.diagnose import (
    DiagnosisLine,
    PartitionEnds,
    Tone,
    diagnose_group,
    group_facts,
    group_lines,
    is_stuck,
    lag_of,
    progress_of,
    scan,
    total_lag,
)
from semel.errors import GroupIdNotFound
from semel_protocol.control import ControlType

from semel_console.query import QueryParameters

WAIT_S = 1.0
"""The time between the two looks at committed offsets that show whether a group moves."""
IN_TABLE = re.compile(" at the end, nothing to read| empty, nothing committed")
COUNTED_OFFSETS_MAX = 20_000
"""A partition with more offsets ahead is not counted record by record."""


async def groups(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """All groups with their states, members and lag in offsets."""
    names = [found.group_id for found in await admin.list_consumer_groups()]
    found = await admin.describe_consumer_groups(names) if names else []
    lags = await lag_of(admin, found) if found else {}
    return {
        "groups": [
            {
                "group": each.group_id,
                "state": each.state,
                "protocol": each.protocol_type,
                "assignor": each.protocol,
                "members": len(each.members),
                "topics": sorted({row.at.topic for row in lags[each.group_id]}),
                "lag": total_lag(lags[each.group_id]),
                "coordinator": each.coordinator,
            }
            for each in found
        ]
    }


async def readers(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """The groups with committed offsets or members in `topic`, those with the most lag first. members, committed: the
    number of members with partitions of it, and of its partitions with a committed offset.
    """
    topic = query.text("topic")
    names = [found.group_id for found in await admin.list_consumer_groups()]
    found = await admin.describe_consumer_groups(names) if names else []
    lags = await lag_of(admin, found) if found else {}
    rows: list[dict[str, Any]] = []
    for each in found:
        here = [row for row in lags[each.group_id] if row.at.topic == topic]
        if here:
            members = sum(any(at.topic == topic for at in member.assignment) for member in each.members)
            committed = sum(row.committed is not None for row in here)
            rows.append(
                {
                    "group": each.group_id,
                    "state": each.state,
                    "members": members,
                    "committed": committed,
                    "lag": total_lag(here),
                }
            )
    return {"groups": sorted(rows, key=lambda row: (-(row["lag"] or 0), row["group"]))}


async def group(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """One group. `text`: what `semel group stuck` says. records_ahead: what a read_committed consumer will get."""
    name = query.text("group")
    found = await diagnose_group(admin, name, WAIT_S)
    if found.group.state == "Dead" and not found.pending:
        raise GroupIdNotFound(f"There is no group {name!r}")
    lags = (await lag_of(admin, [found.group]))[name]
    facts = group_facts(found.group, lags)
    for row in facts["partitions"]:
        at = TopicPartition(row["topic"], row["partition"])
        ends = found.ends.get(at)
        row["progress"] = None if ends is None else progress_of(found, at, ends).value
        row["last_stable_offset"] = None if ends is None else ends.last_stable
        row["records_ahead"] = None if ends is None else await records_ahead(admin, at, row["committed"], ends)
    return {
        **facts,
        "coordinator": found.group.coordinator,
        "assignor": found.group.protocol,
        "list": [
            {
                "member": each.group_instance_id or each.member_id,
                "client_id": each.client_id,
                "host": each.client_host,
                "partitions": [f"{at.topic}-{at.partition}" for at in each.assignment],
            }
            for each in found.group.members
        ],
        "stuck": is_stuck(found),
        "reasons": [line.plain.strip() for line in group_lines(found, now_ms)[1:] if says_more(line)],
    }


def says_more(line: DiagnosisLine) -> bool:
    """PURE. Whether a line of `semel group stuck` says more than the table of partitions, which has their progress."""
    if line.caption is not None:
        return bool(line.text)
    is_in_table = line.tone is Tone.GOOD or re.search(
        " at the end, nothing to read| empty, nothing committed", line.text
    )
    return bool(line.text.strip()) and not is_in_table


async def records_ahead(admin: Admin, at: TopicPartition, committed: int | None, ends: PartitionEnds) -> int | None:
    """The records that a read_committed consumer gets now: no markers, no aborted and no open transactions. None when
    there are more than COUNTED_OFFSETS_MAX offsets ahead.
    """
    start = max(ends.start, ends.start if committed is None else committed)
    if start >= ends.last_stable:
        return 0
    if ends.high_watermark - start > COUNTED_OFFSETS_MAX:
        return None
    readable = 0
    undecided: dict[int, int] = {}
    async for batch in scan(admin, at, start, ends.high_watermark):
        header = batch.header
        if batch.marker is not None:
            count = undecided.pop(header.producer_id, 0)
            readable += count if batch.marker is ControlType.COMMIT else 0
        elif not header.is_control and header.base_offset < ends.last_stable:
            count = max(0, header.record_count - max(0, start - header.base_offset))
            if header.is_transactional:
                undecided[header.producer_id] = undecided.get(header.producer_id, 0) + count
            else:
                readable += count
    return readable
