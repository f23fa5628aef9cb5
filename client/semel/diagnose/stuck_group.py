"""Explains why a consumer group does not move."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from semel_protocol.hashes import coordinator_partition

from semel._texts import compact, duration, one_of, plural
from semel.admin import Admin, ConsumerGroupDescription, MemberDescription
from semel.diagnose.holders import (
    OpenTransaction,
    by_transaction,
    describe_transaction,
    open_transaction_facts,
    open_transactions,
)
from semel.diagnose.lines import DiagnosisLine, Tone, captioned
from semel.diagnose.log_scan import scan
from semel.diagnose.partitions import PartitionEnds, ends_of
from semel.diagnose.reconciliation import blocks_of, member_facts, member_lines
from semel.diagnose.stuck_topic import held_back_lines
from semel.diagnose.timeline import Outcome, SpanCollector
from semel.structs import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
LOOK_AHEAD = 10_000
"""The number of offsets scanned to distinguish readable records from markers and aborted records."""

EMPTY = "Empty"

STATES = {
    EMPTY: "it has no members. Start its consumers.",
    "PreparingRebalance": "it rebalances: it waits until every member has joined again, at most the longest "
    "max.poll.interval.ms. A member that is processing records delays all others.",
    "CompletingRebalance": "it rebalances: it waits for its leader to assign the partitions.",
    "Assigning": "it rebalances: its epoch is ahead of its assignment, and its members keep what they have until the "
    "coordinator has made the next one.",
    "Reconciling": "it rebalances: a partition that moves is free once the member that had it has given it up.",
    "Dead": "there is no such group yet; its first offsets may be part of one of the transactions below.",
}


NO_MEMBERS = "it has no members. If its consumers were stopped, start them; if they died, see below."
SUSPECTS_SHOWN = 3
UNOWNED = "no member has this partition. Restart one member of the group: the rebalance assigns the partition."

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class GroupFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a group.

    before, after: committed offsets, `waited_s` seconds apart.
    done: partitions with only markers and aborted records ahead.
    open_transactions: the transactions that hold back its partitions.
    pending: transactions that may hold offsets of this group until they end.
    unowned: partitions that the group should read and that no member has (`unowned_of`).
    members_before: the ids of the members when `before` was read; None: not known.
    """

    group: ConsumerGroupDescription
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    waited_s: float
    ends: Mapping[TopicPartition, PartitionEnds]
    done: Sequence[TopicPartition]
    open_transactions: Sequence[OpenTransaction]
    pending: Sequence[OpenTransaction]
    unowned: frozenset[TopicPartition] = frozenset()
    members_before: frozenset[str] | None = None


async def diagnose_group(admin: Admin, name: str, wait_s: float = 1.0) -> GroupFindings:
    """The facts about a group. wait_s: the seconds between the two requests for its committed offsets, which show
    whether it moves. A group that does not exist has the state "Dead".
    """
    (earlier,) = await admin.describe_consumer_groups([name])
    before = await _committed(admin, name)
    await asyncio.sleep(wait_s)
    after = await _committed(admin, name)
    (group,) = await admin.describe_consumer_groups([name])
    existing = {topic.name: len(topic.partitions) for topic in await admin.describe_topics()}
    wanted = [TopicPartition(name, index) for name in read_topics(group) for index in range(existing.get(name, 0))]
    partitions = [at for at in sorted({*after, *wanted}) if at.partition < existing.get(at.topic, 0)]
    ends = await ends_of(admin, partitions) if partitions else {}
    held = [at for at, each in ends.items() if each.held_back]
    pending: list[OpenTransaction] = []
    if count := existing.get(OFFSETS_TOPIC, 0):
        home = TopicPartition(OFFSETS_TOPIC, coordinator_partition(name, count))
        pending = await open_transactions(admin, [home])
    return GroupFindings(
        group=group,
        before=before,
        after=after,
        waited_s=wait_s,
        ends=ends,
        done=[at for at, each in ends.items() if at in after and await _is_done(admin, at, after[at], each)],
        open_transactions=await open_transactions(admin, held) if held else [],
        pending=pending,
        unowned=unowned_of(group, wanted),
        members_before=frozenset(member.member_id for member in earlier.members),
    )


def read_topics(group: ConsumerGroupDescription) -> frozenset[str]:
    """PURE. The topics that members subscribe to, or have partitions of. The topics that a pattern matches are known by
    the partitions alone."""
    named = {topic for member in group.members for topic in member.subscription}
    places = [at for member in group.members for at in (*member.assignment, *(member.target_assignment or ()))]
    return frozenset(named.union(at.topic for at in places))


def unowned_of(group: ConsumerGroupDescription, wanted: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
    """PURE. Those of the partitions that no member has, and that no member is about to give up or to get; none while
    the group rebalances."""
    if not group.members or group.state in REBALANCING:
        return frozenset()
    owned = {at for member in group.members for at in (*member.assignment, *(member.target_assignment or ()))}
    return frozenset(wanted).difference(owned, *(block.partitions for block in blocks_of(group)))


async def _is_done(admin: Admin, at: TopicPartition, offset: int, ends: PartitionEnds) -> bool:
    """Whether no record from `offset` on is readable under read_committed."""
    if not ends.start <= offset < ends.last_stable:
        return False
    end = min(ends.high_watermark, offset + LOOK_AHEAD)  # past the stable offset: markers of earlier records
    spans = SpanCollector()
    async for batch in scan(admin, at, offset, end):
        spans.add(batch)
    ahead = [span for span in spans.result() if any(first < ends.last_stable for first, _ in span.pieces)]
    return end == ends.high_watermark and all(span.outcome is Outcome.ABORTED for span in ahead)


async def _committed(admin: Admin, name: str) -> dict[TopicPartition, int]:
    return {at: row.offset for at, row in (await admin.list_consumer_group_offsets(name)).items()}


class Progress(Enum):
    """The progress of a group in a partition."""

    MOVING = "moving"
    AT_END = "at end"
    """Nothing is left to read; perhaps markers and aborted records."""
    EMPTY = "empty"
    """Without a record and without a committed offset."""
    HELD_BACK = "held back"
    """An open transaction keeps a read_committed consumer from reading on."""
    NOT_MOVING = "not moving"
    UNCOMMITTED = "nothing committed"
    BEYOND_END = "beyond the end"
    BELOW_START = "below the start"
    UNOWNED = "no owner"
    """No member has the partition, although the group reads its topic. Perhaps there is nothing to read yet."""


FINE = (Progress.MOVING, Progress.AT_END, Progress.EMPTY)


def progress_of(found: GroupFindings, at: TopicPartition, ends: PartitionEnds) -> Progress:
    """PURE. The progress in one partition."""
    offset = found.after.get(at)
    if at in found.unowned and (offset is None or offset == ends.high_watermark):
        return Progress.UNOWNED
    if offset is None:
        return Progress.UNCOMMITTED if ends.high_watermark > ends.start else Progress.EMPTY
    if offset > found.before.get(at, offset) and found.waited_s:
        return Progress.MOVING
    if offset > ends.high_watermark:
        return Progress.BEYOND_END
    if offset == ends.high_watermark or (at in found.done and not ends.held_back):
        return Progress.AT_END
    if offset < ends.start:
        return Progress.BELOW_START
    return Progress.HELD_BACK if offset >= ends.last_stable or at in found.done else Progress.NOT_MOVING


def suspects_of(found: GroupFindings) -> list[TopicPartition]:
    """PURE. The partitions whose record at the committed offset may be the one of which consumers die.

    The group has read until there and records follow; and it has no members, or other ones than when the look began: so
    consumers come and go, and none gets further. That consumers die, and of what, no broker knows.
    """
    members = frozenset(member.member_id for member in found.group.members)
    if members and found.members_before in (None, members):
        return []
    return [
        at
        for at, ends in found.ends.items()
        if at in found.after and progress_of(found, at, ends) is Progress.NOT_MOVING
    ]


def is_stuck(found: GroupFindings) -> bool:
    """PURE. Whether something is left to read and the group does not move, or it rebalances, or does not exist yet."""
    if found.group.state in (*REBALANCING, "Dead"):
        return True
    if found.pending and not found.after and not found.group.members:
        return True  # as "Dead", which an earlier release of semel's broker says of such a group
    return any(progress_of(found, at, ends) not in FINE for at, ends in found.ends.items())


def group_findings_facts(found: GroupFindings) -> dict[str, Any]:
    """PURE. The findings as plain types, as `semel group stuck --json` prints them."""
    return {
        "group": found.group.group_id,
        "state": found.group.state,
        "members": len(found.group.members),
        "stuck": is_stuck(found),
        "waited_ms": round(found.waited_s * 1000),
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "progress": progress_of(found, at, ends).value,
                "committed": found.after.get(at),
                "start_offset": ends.start,
                "last_stable_offset": ends.last_stable,
                "high_watermark": ends.high_watermark,
                **_owner_facts(found, at),
            }
            for at, ends in found.ends.items()
        ],
        "suspects": [
            {"topic": at.topic, "partition": at.partition, "offset": found.after[at]} for at in suspects_of(found)
        ],
        "open_transactions": [open_transaction_facts(holders) for holders in by_transaction(found.open_transactions)],
        "pending_offsets": [open_transaction_facts(holders) for holders in by_transaction(found.pending)],
        "protocol": found.group.group_type or None,
        "group_epoch": found.group.group_epoch,
        "assignment_epoch": found.group.assignment_epoch,
        **member_facts(found.group),
    }


def group_lines(found: GroupFindings, now_ms: int, otherwise: str = "") -> list[DiagnosisLine]:
    """PURE. The findings in words: the state, the members, the partitions, the open transactions.

    otherwise: what a reader can do to see whether a member only takes long, as the end of a sentence.
    """
    group = found.group
    lines = [DiagnosisLine(f"  {group.state}, {plural(len(group.members), 'member')}", heading=group.group_id)]
    suspects = suspects_of(found)
    if group.state == EMPTY and suspects:
        lines.append(DiagnosisLine(f"  Not moving: {NO_MEMBERS}", Tone.WARNING))
    elif group.state in STATES:
        lines.append(DiagnosisLine(f"  Not moving: {STATES[group.state]}", Tone.WARNING))
    lines += member_lines(group)
    by_progress: dict[Progress, dict[TopicPartition, PartitionEnds]] = {}
    for at, ends in found.ends.items():
        by_progress.setdefault(progress_of(found, at, ends), {})[at] = ends
    for progress in sorted(by_progress, key=list(Progress).index):
        lines += _partitions(found, progress, by_progress[progress], otherwise)
    if held := by_progress.get(Progress.HELD_BACK):
        lines += held_back_lines(held, [each for each in found.open_transactions if each.partition in held], now_ms)
    lines += _suspect_lines(found, suspects)
    if not found.ends:
        lines.append(DiagnosisLine("  It has no committed offsets, and its members have no partitions."))
    if found.pending:
        lines += [
            DiagnosisLine(),
            DiagnosisLine(
                "Offsets committed in a transaction take effect when it ends. Transactions open in the partition of "
                "this group's offsets (some may belong to other groups):"
            ),
        ]
        for holders in by_transaction(found.pending):
            lines += [DiagnosisLine(), *captioned(describe_transaction(holders, now_ms))]
    return lines


def _partitions(
    found: GroupFindings, progress: Progress, places: Mapping[TopicPartition, PartitionEnds], otherwise: str
) -> list[DiagnosisLine]:
    """One line for all partitions of this progress, or one for each where the figures of each are needed."""
    if len(places) > 1:
        count = f"  {plural(len(places), 'partition')}:"
        match progress:
            case Progress.MOVING:
                moved = sum(found.after[at] - found.before.get(at, found.after[at]) for at in places)
                return [
                    DiagnosisLine(
                        f"{count} moving, together {moved / found.waited_s:,.0f} offsets a second.", Tone.GOOD
                    )
                ]
            case Progress.AT_END:
                return [DiagnosisLine(f"{count} at the end, nothing to read.")]
            case Progress.EMPTY:
                return [DiagnosisLine(f"{count} empty, nothing committed yet.")]
            case Progress.HELD_BACK:
                return [DiagnosisLine(f"{count} a read_committed consumer cannot read further.", Tone.WARNING)]
            case Progress.NOT_MOVING | Progress.UNCOMMITTED:
                return _by_owner(found, progress, places, otherwise)
            case _:
                pass
    return [_partition(found, at, ends, progress, otherwise) for at, ends in places.items()]


def _by_owner(
    found: GroupFindings, progress: Progress, places: Mapping[TopicPartition, PartitionEnds], otherwise: str
) -> list[DiagnosisLine]:
    """One line for the partitions of one member, which may have many."""
    of_owner: dict[str, dict[TopicPartition, PartitionEnds]] = {}
    for at, ends in places.items():
        of_owner.setdefault(_whose(found, at, otherwise), {})[at] = ends
    lines = []
    for whose, own in of_owner.items():
        if len(own) == 1:
            lines += [_partition(found, at, ends, progress, otherwise) for at, ends in own.items()]
            continue
        count = f"  {plural(len(own), 'partition')} ({compact(own)})"
        if progress is Progress.UNCOMMITTED:
            lines.append(DiagnosisLine(f"{count}: nothing committed yet; {whose}."))
            continue
        left = plural(sum(ends.last_stable - found.after[at] for at, ends in own.items()), "offset")
        said = f"{count}: {left} can be read, and none was committed {_watched(found)}; {whose}."
        lines.append(DiagnosisLine(said, Tone.WARNING))
    return lines


def _watched(found: GroupFindings) -> str:
    return f"in the {duration(found.waited_s * 1000)} of this look"


def _partition(
    found: GroupFindings, at: TopicPartition, ends: PartitionEnds, progress: Progress, otherwise: str
) -> DiagnosisLine:
    offset = found.after.get(at)
    place = f"  {at.topic}-{at.partition}"
    if progress is Progress.UNOWNED:
        said = "nothing committed" if offset is None else f"committed {offset:,} of {ends.high_watermark:,}"
        return DiagnosisLine(f"{place}  {said}: {UNOWNED}", Tone.BAD)
    if offset is None:
        return DiagnosisLine(f"{place}  nothing committed yet; {_whose(found, at, otherwise)}.")
    said = f"{place}  committed {offset:,} of {ends.high_watermark:,}: "
    match progress:
        case Progress.MOVING:
            moved = offset - found.before.get(at, offset)
            return DiagnosisLine(f"{said}moving, {moved / found.waited_s:,.0f} offsets a second.", Tone.GOOD)
        case Progress.BEYOND_END:
            advice = "The topic was created again or lost records; reset the offset."
            return DiagnosisLine(f"{said}beyond the end. {advice}", Tone.BAD)
        case Progress.AT_END if offset < ends.high_watermark:
            return DiagnosisLine(f"{said}at the end, only markers and aborted records follow.")
        case Progress.AT_END:
            return DiagnosisLine(f"{said}at the end, nothing to read.")
        case Progress.BELOW_START:
            return DiagnosisLine(
                f"{said}below the first offset, {ends.start:,}: records were deleted before they were read; "
                "auto.offset.reset decides where its consumer continues.",
                Tone.BAD,
            )
        case Progress.HELD_BACK:
            return DiagnosisLine(f"{said}a read_committed consumer cannot read further.", Tone.WARNING)
        case _:
            return DiagnosisLine(
                f"{said}{plural(ends.last_stable - offset, 'offset')} can be read, and none was committed "
                f"{_watched(found)}; {_whose(found, at, otherwise)}.",
                Tone.WARNING,
            )


def _suspect_lines(found: GroupFindings, suspects: Sequence[TopicPartition]) -> list[DiagnosisLine]:
    """The commands that show a record that may be the cause, and go past it."""
    if not suspects:
        return []
    group, shown = found.group, suspects[:SUSPECTS_SHOWN]
    places = [f"{at.topic}-{at.partition}@{found.after[at]}" for at in shown]
    if len(shown) < len(suspects):
        places.append(f"one of {plural(len(suspects) - len(shown), 'other partition')}")
    which = "The next record" if len(suspects) == 1 else "One of the next records"
    came = "" if not group.members else "The members have changed since the look began, and no offset was committed. "
    lines = [
        DiagnosisLine(),
        DiagnosisLine(
            f"{came}{which}, {one_of(places)}, may be the cause if consumers die of it: their logs say. To read it, "
            f"and to go past it{' once all consumers are stopped' if group.members else ''}:",
            Tone.WARNING,
        ),
    ]
    for at in shown:
        topic, name = shlex.quote(at.topic), shlex.quote(group.group_id)
        place = shlex.quote(f"{at.topic}:{at.partition}")
        lines += captioned(
            [
                ("read", f"semel consume {topic} -p {at.partition} -o {found.after[at]} -n 1 --json"),
                ("go past", f"semel group reset {name} {place} --by 1"),
            ]
        )
    return lines


def _owner_facts(found: GroupFindings, at: TopicPartition) -> dict[str, Any]:
    """The member that has the partition: its name, host, client id, and the time since its last heartbeat."""
    member = _member_of(found, at)
    return {
        "owner": None if member is None else member.name,
        "owner_host": None if member is None else member.client_host,
        "owner_client_id": None if member is None else member.client_id,
        "owner_silent_ms": None if member is None else member.silent_ms,
    }


def _member_of(found: GroupFindings, at: TopicPartition) -> MemberDescription | None:
    return next((member for member in found.group.members if at in member.assignment), None)


def _whose(found: GroupFindings, at: TopicPartition, otherwise: str) -> str:
    member = _member_of(found, at)
    if member is None:
        for block in blocks_of(found.group):
            if at in block.partitions:
                return f"{one_of(block.holders)} has not given it up, and {block.waits} waits for it"
        return "without a member"
    if member.is_away:
        return f"it waits for {member.name}, a static member that is away: start it, or wait until its session ends"
    return f"assigned to {_described(member)}: check that member{otherwise}"


def _described(member: MemberDescription) -> str:
    """`m-1 (client 'web' at 10.0.0.5, last heartbeat 1.2 s ago)`."""
    beat = "" if member.silent_ms is None else f", last heartbeat {duration(member.silent_ms)} ago"
    return f"{member.name} (client {member.client_id!r} at {member.client_host}{beat})"
