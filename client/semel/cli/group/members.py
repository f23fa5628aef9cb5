"""PURE: The members of groups in `semel group describe`: as plain types, and as a table for the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from semel_protocol.tables import Table

from semel.admin import ConsumerGroupDescription
from semel.cli.shared.common import failure
from semel.cli.shared.partition_names import compact
from semel.cli.shared.reconciliation import steps_of, words
from semel.cli.shared.times import plural
from semel.structs import TopicPartition


def members_of(group: ConsumerGroupDescription) -> list[dict[str, Any]]:
    """The broker's description of each member. Fields of the consumer protocol are None in a classic group."""
    steps = steps_of(group)
    found = []
    for member in group.members:
        own = steps.get(member.member_id)
        found.append(
            {
                "member": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "rack": member.rack_id,
                "protocol": member.member_type,
                "topics": list(member.subscription),
                "pattern": member.pattern,
                "epoch": member.member_epoch,
                "assigned": _names(member.assignment),
                "target": None if member.target_assignment is None else _names(member.target_assignment),
                "to_do": None if own is None else words(own),
                "has_to_give_up": None if own is None else _names(own.give_up),
                "may_have_to_give_up": None if own is None else _names(own.may_hold),
                "waits_for": None if own is None else _waits(own.waits_for),
            }
        )
    return found


def members_table(group: ConsumerGroupDescription) -> Table:
    """The members of a group of the consumer protocol."""
    texts = ("client", "host", "instance", "rack", "subscription", "assigned", "target", "to do")
    shown = Table("Members", "member", "epoch", *texts, right=("epoch",), below=texts)
    steps = steps_of(group)
    for member in group.members:
        pattern = f"pattern {member.pattern}" if member.pattern else ""
        shown.add_row(
            member.member_id,
            str(member.member_epoch),
            member.client_id,
            member.client_host,
            member.group_instance_id,
            member.rack_id,
            ", ".join(filter(None, (*member.subscription, pattern))),
            compact(member.assignment),
            compact(member.target_assignment or ()),
            words(steps[member.member_id]),
        )
    return shown


def must_be_empty(group: ConsumerGroupDescription, what_members_do: str) -> None:
    """Raise ClickException for a group with members. what_members_do: why that is refused, after "which"."""
    if not group.members:
        return
    who = ", ".join(f"{each.group_instance_id or each.client_id} on {each.client_host}" for each in group.members)
    count = plural(len(group.members), "member")
    if all(member.is_away for member in group.members):
        raise failure(
            f"{group.group_id} has {count} ({who}), static and away: the broker refuses this until their sessions have "
            "ended. Wait for the broker's group.consumer.session.timeout.ms, and run it again"
        )
    raise failure(f"{group.group_id} has {count} ({who}), which {what_members_do}: stop them first")


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{at.topic}-{at.partition}" for at in partitions]


def _waits(waits_for: Mapping[TopicPartition, tuple[str, ...]]) -> list[dict[str, Any]]:
    return [{"partition": f"{at.topic}-{at.partition}", "held_by": list(names)} for at, names in waits_for.items()]
