"""Changes that coordinators make: of the offsets of groups, of groups, and of transactions."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace
from semel import Admin, TopicPartition
from semel.diagnose import Verdict, open_transactions, plan_reset, reset_facts
from semel.errors import GroupIdNotFound
from semel.structs import OffsetAndMetadata

from semel_console.answers import ChangeAnswer
from semel_console.query import must_be_typed, position

REASON = "semel console"


class ResetOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Sets committed offsets of a group without members. names: topics, or TOPIC:PARTITION; none: all committed ones.

    to: as `semel group reset --to`. offsets: `orders-0` -> the offset that the dry run showed; `to` may have moved.
    dry_run: only show the changes.
    """

    group: str
    to: str
    names: list[str] = []
    offsets: dict[str, int] | None = None
    dry_run: bool = True


class DeleteGroup(msgspec.Struct, forbid_unknown_fields=True):
    """Deletes a group without members. typed: its name, unless `dry_run`."""

    group: str
    dry_run: bool = True
    typed: str = ""


async def reset_offsets(admin: Admin, body: ResetOffsets, now_ms: int) -> dict[str, Any]:
    moves = await plan_reset(admin, body.group, body.names, position(body.to, "to", now_ms))
    if body.offsets is not None:
        shown = [(each, body.offsets.get(f"{each.at.topic}-{each.at.partition}")) for each in moves]
        moves = [replace(each, offset=offset) for each, offset in shown if offset is not None]
    moved = [each for each in moves if each.offset != each.committed]
    if moved and not body.dry_run:
        changes = {each.at: OffsetAndMetadata(each.offset, "") for each in moved}
        await admin.alter_consumer_group_offsets(body.group, changes)
    said = [
        f"{each.at.topic}-{each.at.partition}: {_offset(each.committed)} becomes {each.offset:,}." for each in moved
    ]
    count = f"{len(moved):,} offset{' is' if len(moved) == 1 else 's are'} set"
    facts = reset_facts(body.group, moves, 0 if body.dry_run else len(moved))
    exact = {"offsets": {f"{each.at.topic}-{each.at.partition}": each.offset for each in moves}}
    return {**facts, "changes": said, "notes": [], "exact": exact, "text": None if body.dry_run else count}


def _offset(committed: int) -> str:
    return "nothing committed" if committed < 0 else f"{committed:,}"


async def delete_group(admin: Admin, body: DeleteGroup, now_ms: int) -> ChangeAnswer:
    (found,) = await admin.describe_consumer_groups([body.group])
    if found.state == "Dead":
        raise GroupIdNotFound(f"deleting group {body.group!r}")
    if not body.dry_run:
        must_be_typed(body.typed, body.group)
        await admin.delete_consumer_groups([body.group])
        return ChangeAnswer(changes=[], text=f"{body.group} is deleted")
    committed = await admin.list_consumer_group_offsets(body.group)
    places = ", ".join(f"{at.topic}-{at.partition} ({each.offset:,})" for at, each in sorted(committed.items()))
    changes = [f"The group {body.group} is deleted."]
    if places:
        changes.append(f"Its committed offsets are deleted: {places}.")
    notes = ["Consumers that join it again begin at their auto.offset.reset."] if places else []
    if found.members:
        names = ", ".join(f"{each.name} on {each.client_host}" for each in found.members)
        notes.append(f"It has members ({names}): brokers delete only groups without. Stop them first.")
    return ChangeAnswer(changes=changes, notes=notes)


class AbortTransaction(msgspec.Struct, forbid_unknown_fields=True):
    """Aborts the open transaction of a transactional id, and fences its producer."""

    transactional_id: str
    reason: str = REASON


class AbortHanging(msgspec.Struct, forbid_unknown_fields=True):
    """Writes the abort marker of a transaction that no coordinator has. producer_id: a text if it is large."""

    topic: str
    partition: int
    producer_id: int | str


async def abort_transaction(admin: Admin, body: AbortTransaction, now_ms: int) -> dict[str, Any]:
    (found,) = await admin.describe_transactions([body.transactional_id])
    if found.state != "Ongoing":
        raise ValueError(f"{body.transactional_id} has no transaction that can be aborted: its state is {found.state}")
    await admin.fence_producers([body.transactional_id], body.reason or REASON)
    return {"text": f"{body.transactional_id}: aborted; its producer (epoch {found.producer_epoch}) is fenced"}


async def abort_hanging(admin: Admin, body: AbortHanging, now_ms: int) -> dict[str, Any]:
    at, producer_id = TopicPartition(body.topic, body.partition), int(body.producer_id)
    open_ones = [each for each in await open_transactions(admin, [at]) if each.producer.producer_id == producer_id]
    if not open_ones:
        raise ValueError(f"producer {producer_id} has no transaction open in {at.topic}-{at.partition}")
    if open_ones[0].verdict is not Verdict.HANGING:
        raise ValueError("this transaction is not hanging: its coordinator knows it. Abort it by its transactional id")
    await admin.abort_transaction(at, open_ones[0].producer)
    return {"text": f"{at.topic}-{at.partition}: the transaction of producer {body.producer_id} is aborted"}
