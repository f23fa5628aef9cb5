"""PURE: the obstacles between a consumer group (KIP-848) and its target assignment, for `semel group stuck`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from semel import TopicPartition
from semel.admin import ConsumerGroupDescription
from semel.cli.shared.reconciliation import blocks_of, is_unassigned, one_of, spoken, steps_of, words

HOW_PARTITIONS_ARE_GIVEN_UP = (
    "  A member gives partitions up once its rebalance callback has returned. If it takes longer than its "
    "max.poll.interval.ms, the coordinator removes it. Brokers do not say since when a member has to give them up."
)


def member_facts(group: ConsumerGroupDescription) -> dict[str, Any]:
    """As plain types. The epochs are None, and the lists empty, for a classic group."""
    return {
        "protocol": group.group_type or None,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "not_given_up": [
            {"partitions": _names(block.partitions), "held_by": list(block.holders), "waits": block.waits}
            for block in blocks_of(group)
        ],
        "away": [
            {"member": member.name, "partitions": _names(member.assignment)}
            for member in group.members
            if member.is_away
        ],
    }


def member_lines(group: ConsumerGroupDescription) -> list[Text]:
    """The lines to print; none for a classic group."""
    steps = steps_of(group)
    lines = []
    if is_unassigned(group):
        epochs = f"group epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}"
        lines.append(Text(f"  {epochs}: the coordinator makes an assignment at a heartbeat of a member.", "yellow"))
    blocks = blocks_of(group)
    for block in blocks:
        missing = f"{spoken(block.partitions)}: {one_of(block.holders)} has not given up what {block.waits} waits for"
        lines.append(Text(f"  {missing}.", "yellow"))
    away = {member.name for member in group.members if member.is_away}
    if any(not away.issuperset(block.holders) for block in blocks):
        lines.append(Text(HOW_PARTITIONS_ARE_GIVEN_UP))
    named = {name for block in blocks for name in (block.waits, *block.holders)}
    for member in group.members:
        own = steps.get(member.member_id)
        if own is None:
            continue
        if own.left:
            lines.append(Text(f"  {member.name} is a static member and {words(own)}.", "yellow"))
        elif member.name not in named and (own.behind is not None or own.give_up or own.next):
            lines.append(Text(f"  {member.name} {words(own)}."))
    return lines


def _names(partitions: Sequence[TopicPartition]) -> list[str]:
    return [f"{at.topic}-{at.partition}" for at in partitions]
