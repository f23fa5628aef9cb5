"""PURE: the remaining steps of the members of a consumer group (KIP-848), in plain words.

A broker describes for each member its epoch, the partitions that it may keep, and its target assignment. Partitions
that the coordinator has asked a member to give up are in no description. So they are concluded: a partition that a
member waits for, and that is in no assignment, is held by a member that has not reached the assignment epoch. If no
member is behind, the partition is free. Between two heartbeats the conclusion may name a member too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from semel._texts import names_of, one_of, spoken
from semel.admin import ConsumerGroupDescription, MemberDescription
from semel.diagnose.lines import DiagnosisLine, Tone
from semel.structs import TopicPartition

CONSUMER = "consumer"
HOW_PARTITIONS_ARE_GIVEN_UP = (
    "  A member gives partitions up once its rebalance callback has returned. If it takes longer than its "
    "max.poll.interval.ms, the coordinator removes it. Brokers do not say since when a member has to give them up."
)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The remaining steps of one member.

    give_up: partitions that it has and that are not in its target assignment.
    may_hold: partitions that it or another member has yet to give up.
    waits_for: partitions of its target assignment, with the names of the members of which one holds it.
    next: partitions of its target assignment that are free.
    behind: the epoch that it has not confirmed. unassigned: the group epoch without an assignment. None: it has.
    left: the partitions that wait for a static member that is away; None: it is not away.
    """

    give_up: tuple[TopicPartition, ...] = ()
    may_hold: tuple[TopicPartition, ...] = ()
    waits_for: Mapping[TopicPartition, tuple[str, ...]] = {}
    next: tuple[TopicPartition, ...] = ()
    behind: int | None = None
    unassigned: int | None = None
    left: tuple[TopicPartition, ...] | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions for which a member waits. holders: the names of the members of which one has not given them up."""

    partitions: tuple[TopicPartition, ...]
    holders: tuple[str, ...]
    waits: str


def is_of_consumer_protocol(group: ConsumerGroupDescription) -> bool:
    return group.group_type == CONSUMER and group.assignment_epoch is not None


def is_unassigned(group: ConsumerGroupDescription) -> bool:
    """Whether the coordinator has no assignment for the group's epoch yet. Never so in a classic group."""
    return (group.group_epoch or 0) > (group.assignment_epoch or 0)


def steps_of(group: ConsumerGroupDescription) -> dict[str, Steps]:
    """By member id. Empty for a classic group, whose members' steps are not known."""
    if not is_of_consumer_protocol(group):
        return {}
    epoch = group.assignment_epoch or 0
    late = [member for member in group.members if _is_behind(member, epoch)]
    revoking = [member for member in late if member.member_epoch]  # a member at epoch 0 owns nothing
    owners = {at: member for member in group.members for at in member.assignment}
    waits: dict[str, dict[TopicPartition, tuple[str, ...]]] = {}
    free: dict[str, list[TopicPartition]] = {}
    held: dict[str, dict[TopicPartition, bool]] = {member.member_id: {} for member in revoking}
    for member in group.members:
        for at in _missing(member):
            holders = [owners[at]] if at in owners else [each for each in revoking if each is not member]
            if not holders:
                free.setdefault(member.member_id, []).append(at)
                continue
            waits.setdefault(member.member_id, {})[at] = tuple(each.name for each in holders)
            if at not in owners:
                for each in holders:
                    held[each.member_id][at] = len(holders) == 1
    found = {}
    for member in group.members:
        kept = () if member.is_away else set(member.assignment) - set(member.target_assignment or ())
        concluded = held.get(member.member_id, {})
        found[member.member_id] = Steps(
            give_up=tuple(sorted({*kept, *(at for at, alone in concluded.items() if alone)})),
            may_hold=tuple(sorted(at for at, alone in concluded.items() if not alone)),
            waits_for=waits.get(member.member_id, {}),
            next=tuple(free.get(member.member_id, ())),
            behind=epoch if member in late else None,
            unassigned=group.group_epoch if is_unassigned(group) and not member.is_away else None,
            left=member.assignment if member.is_away else None,
        )
    return found


def blocks_of(group: ConsumerGroupDescription) -> list[Block]:
    """Which member waits for which partitions of which other member."""
    names = {member.member_id: member.name for member in group.members}
    found: dict[tuple[str, tuple[str, ...]], list[TopicPartition]] = {}
    for member_id, steps in steps_of(group).items():
        for at, holders in steps.waits_for.items():
            found.setdefault((names[member_id], holders), []).append(at)
    return [Block(partitions=tuple(places), holders=of, waits=name) for (name, of), places in found.items()]


def words(steps: Steps) -> str:
    """One line, such as `has to give up flights 3-4; waits for orders 1, which consumer-2 has not given up yet`."""
    if steps.left is not None:
        waiting = f"; {spoken(steps.left)} wait for it until its session ends" if steps.left else ""
        return f"away{waiting}"
    parts = []
    if steps.give_up:
        parts.append(f"has to give up {spoken(steps.give_up)}")
    if steps.may_hold:
        parts.append(f"may have to give up {spoken(steps.may_hold)}")
    by_holders: dict[tuple[str, ...], list[TopicPartition]] = {}
    for at, holders in steps.waits_for.items():
        by_holders.setdefault(holders, []).append(at)
    for holders, places in by_holders.items():
        parts.append(f"waits for {spoken(places)}, which {one_of(holders)} has not given up yet")
    if steps.next:
        parts.append(f"gets {spoken(steps.next)} with its next heartbeat")
    if not parts and steps.behind is not None:
        parts.append(f"has to confirm epoch {steps.behind} with its next heartbeat")
    if steps.unassigned is not None:
        parts.append(f"waits for the assignment of epoch {steps.unassigned}")
    return "; ".join(parts) or "up to date"


def member_facts(group: ConsumerGroupDescription) -> dict[str, Any]:
    """The obstacles between a group and its target assignment, as plain types. The epochs are None, and the lists
    empty, for a classic group.
    """
    return {
        "protocol": group.group_type or None,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "not_given_up": [
            {"partitions": names_of(block.partitions), "held_by": list(block.holders), "waits": block.waits}
            for block in blocks_of(group)
        ],
        "away": [
            {"member": member.name, "partitions": names_of(member.assignment)}
            for member in group.members
            if member.is_away
        ],
    }


def member_lines(group: ConsumerGroupDescription) -> list[DiagnosisLine]:
    """The obstacles between a group and its target assignment, as lines; none for a classic group."""
    steps = steps_of(group)
    lines = []
    if is_unassigned(group):
        epochs = f"group epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}"
        lines.append(
            DiagnosisLine(f"  {epochs}: the coordinator makes an assignment at a heartbeat of a member.", Tone.WARNING)
        )
    blocks = blocks_of(group)
    for block in blocks:
        missing = f"{spoken(block.partitions)}: {one_of(block.holders)} has not given up what {block.waits} waits for"
        lines.append(DiagnosisLine(f"  {missing}.", Tone.WARNING))
    away = {member.name for member in group.members if member.is_away}
    if any(not away.issuperset(block.holders) for block in blocks):
        lines.append(DiagnosisLine(HOW_PARTITIONS_ARE_GIVEN_UP))
    named = {name for block in blocks for name in (block.waits, *block.holders)}
    for member in group.members:
        own = steps.get(member.member_id)
        if own is None:
            continue
        if own.left:
            lines.append(DiagnosisLine(f"  {member.name} is a static member and {words(own)}.", Tone.WARNING))
        elif member.name not in named and (own.behind is not None or own.give_up or own.next):
            lines.append(DiagnosisLine(f"  {member.name} {words(own)}."))
    return lines


def _is_behind(member: MemberDescription, epoch: int) -> bool:
    return not member.is_away and (member.member_epoch or 0) < epoch


def _missing(member: MemberDescription) -> list[TopicPartition]:
    """The partitions that it will have and does not have. One that is away has to return first."""
    if member.is_away:
        return []
    return sorted(set(member.target_assignment or ()) - set(member.assignment))
