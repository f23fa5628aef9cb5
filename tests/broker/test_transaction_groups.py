"""Transaction groups over the wire: many producers commit as one, and whoever comes too late hears why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.harness import Harness, Wire
from broker.transactional import TransactionalProducer
from semel_protocol.batch import iterate
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest
from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupRequestTransaction,
)
from semel_protocol.records import decode_batch

GROUP = "sink"
READ_COMMITTED = 1


async def begin(wire: Wire, group: str = GROUP, owner: str = "the driver", timeout_ms: int = 60_000) -> Any:
    return await wire.call(BeginTransactionGroupRequest(group=group, owner=owner, timeout_ms=timeout_ms))


async def decide(
    wire: Wire,
    epoch: int,
    token: str,
    members: Sequence[TransactionalProducer] = (),
    *,
    commit: bool = True,
    group: str = GROUP,
) -> Any:
    request = DecideTransactionGroupRequest(
        group=group,
        group_epoch=epoch,
        token=token,
        committed=commit,
        transactions=[
            DecideTransactionGroupRequestTransaction(
                transactional_id=member.name, producer_id=member.producer_id, producer_epoch=member.epoch
            )
            for member in members
        ],
    )
    return await wire.call(request)


async def init(wire: Wire, name: str, group_epoch: int, version: int = 5) -> Any:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, group_epoch=group_epoch)
    return await wire.call(request, version)


async def member(broker: Harness, name: str, group_epoch: int) -> TransactionalProducer:
    """A producer of its own connection that takes part in the step."""
    producer = TransactionalProducer(await broker.wire(), name=f"{GROUP}/{name}")
    answer = await init(producer.wire, producer.name, group_epoch)
    assert answer.error_code == 0, answer
    producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    return producer


async def committed(wire: Wire, partition: int = 0, topic: str = "out") -> list[bytes | None]:
    """The values that a reader of committed data sees."""
    row = await wire.fetch(topic, 0, partition=partition, isolation_level=READ_COMMITTED, max_wait_ms=0)
    begins = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
    aborted: list[int] = []
    values: list[bytes | None] = []
    for header, view in iterate(row.records or b""):
        while begins and begins[0][0] <= header.base_offset:
            aborted.append(begins.pop(0)[1])
        if header.is_control:
            if header.producer_id in aborted:
                aborted.remove(header.producer_id)
        elif header.producer_id not in aborted:
            values += [record.value for record in decode_batch(view, header)]
    return values


# --- the course of a step ---


async def test_what_many_producers_wrote_is_seen_at_once_and_what_is_not_listed_never(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out", 2)
    step = await begin(wire)
    assert (step.error_code, step.group_epoch, step.decided_token, step.decided_epoch) == (0, 1, None, -1)
    a, b, loser = [await member(broker, name, step.group_epoch) for name in ("a", "b", "loser")]
    for each, value in ((a, b"a"), (b, b"b"), (loser, b"lost")):
        for partition in (0, 1):
            assert (await each.produce("out", value, partition=partition)).error_code == 0
    assert await committed(wire) == []
    done = await decide(wire, step.group_epoch, "q:0", [a, b])
    assert (done.error_code, done.already_decided, done.decided_epoch) == (0, False, 1)
    for partition in (0, 1):
        assert await committed(wire, partition) == [b"a", b"b"]
    again = await decide(wire, step.group_epoch, "q:0", [a, b])
    assert (again.error_code, again.already_decided, again.decided_epoch) == (0, True, 1)
    following = await begin(wire)
    assert (following.group_epoch, following.decided_token, following.decided_epoch) == (2, "q:0", 1)
    again = await decide(wire, 7, "q:0")
    assert (again.already_decided, again.decided_epoch) == (True, 1), "whoever asks, under whichever step"
