"""The changes that the page can make, by name: create a topic, write a record, end a transaction, set a group's
offsets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from semel import Admin, Producer, TopicPartition
from semel.admin import NewTopic
from semel.diagnose import Verdict, open_transactions, plan_reset, reset_facts
from semel.structs import OffsetAndMetadata

from semel_console.query import position

REASON = "semel console"


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    """partitions, replication_factor: None takes the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: dict[str, str] = {}


class AbortTransaction(msgspec.Struct, forbid_unknown_fields=True):
    """Aborts the open transaction of a transactional id, and fences its producer."""

    transactional_id: str
    reason: str = REASON


class AbortHanging(msgspec.Struct, forbid_unknown_fields=True):
    """Writes the abort marker of a transaction that no coordinator has. producer_id: a text if it is large."""

    topic: str
    partition: int
    producer_id: int | str


class ResetOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Sets committed offsets of a group without members. names: topics, or TOPIC:PARTITION; none: all committed ones.

    to: as `semel group reset --to`. dry_run: only show the changes.
    """

    group: str
    to: str
    names: list[str] = []
    dry_run: bool = True


class ProduceRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Writes one record outside of transactions. partition: None lets the key choose. key, value: None is null."""

    topic: str
    partition: int | None = None
    key: str | None = None
    value: str | None = None
    headers: dict[str, str] = {}


async def create_topic(admin: Admin, body: CreateTopic, now_ms: int) -> dict[str, Any]:
    new = NewTopic(body.name, body.partitions or -1, body.replication_factor or -1, topic_configs=body.settings)
    await admin.create_topics([new])
    return {"text": f"{body.name} is created"}


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


async def reset_offsets(admin: Admin, body: ResetOffsets, now_ms: int) -> dict[str, Any]:
    moves = await plan_reset(admin, body.group, body.names, position(body.to, "to", now_ms))
    changes = {each.at: OffsetAndMetadata(each.offset, "") for each in moves if each.offset != each.committed}
    if changes and not body.dry_run:
        await admin.alter_consumer_group_offsets(body.group, changes)
    return reset_facts(body.group, moves, 0 if body.dry_run else len(changes))


async def produce_record(producer: Producer, body: ProduceRecord, now_ms: int) -> dict[str, Any]:
    stored = await producer.send_and_wait(
        body.topic,
        None if body.value is None else body.value.encode(),
        key=None if body.key is None else body.key.encode(),
        partition=body.partition,
        headers=[(name, value.encode()) for name, value in body.headers.items()],
    )
    return {"text": f"written to {stored.topic}-{stored.partition} at offset {stored.offset}"}


class Write(msgspec.Struct, frozen=True):
    """One change. body: the type of its JSON. work: gets an Admin, or a Producer if `needs_producer`, the body and the
    time in ms.
    """

    body: Any
    work: Callable[[Any, Any, int], Awaitable[object]]
    needs_producer: bool = False


WRITES: Mapping[str, Write] = {
    "abort-hanging": Write(AbortHanging, abort_hanging),
    "abort-transaction": Write(AbortTransaction, abort_transaction),
    "create-topic": Write(CreateTopic, create_topic),
    "produce-record": Write(ProduceRecord, produce_record, needs_producer=True),
    "reset-offsets": Write(ResetOffsets, reset_offsets),
}
