"""A client that knows another producer's id, epoch and next sequence can neither write as that producer nor stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broker.harness import Harness, Wire, batch, produce_request, records_of
from broker.sasl_login import log_in, make_user
from broker.transactional import TransactionalProducer
from semel_broker.cluster.records import PRODUCER_ID_KEY
from semel_broker.cluster.store import Delete
from semel_broker.coordination.producer_owners import BOUND, REFUSALS_INTERVAL_S, REFUSALS_MAX
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest

FOREIGN = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
async def broker(start_sasl: Callable[..., Awaitable[Harness]]) -> Harness:
    """A broker with the users alice and mallory, who may both write to the topic `out`."""
    started = await start_sasl()
    await make_user(started, "mallory")
    await (await user(started, "alice")).create_topic("out", 2)
    return started


async def user(broker: Harness, name: str) -> Wire:
    wire = await broker.wire()
    assert (await log_in(wire, name, mechanism="PLAIN")).error_code == ErrorCode.NONE
    return wire


async def values(wire: Wire, isolation_level: int = 1) -> list[bytes | None]:
    row = await wire.fetch("out", 0, isolation_level=isolation_level, max_wait_ms=0)
    return [record.value for record in records_of(row.records) if record.value and len(record.value) > 6]


def idempotent(producer_id: int, sequence: int, value: bytes, *, epoch: int = 0, **fields: Any) -> bytes:
    return batch(value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


@pytest.mark.proves("foreign-producer-id")
@pytest.mark.parametrize("version", [1, 2])
async def test_no_batch_enters_the_transaction_of_another(broker: Harness, version: int) -> None:
    alice = await TransactionalProducer(await user(broker, "alice"), version, "alices").init()
    mallory = await TransactionalProducer(await user(broker, "mallory"), version, "mallorys").init()
    assert (await alice.produce("out", b"of alice 1")).error_code == 0
    if version == 1:
        assert await mallory.add("out", 0) == 0
    for epoch in (alice.epoch, alice.epoch + 1, 32_767):
        for sequence in (0, 1):
            forged = mallory.produce_request(
                "out", b"of mallory", sequence=sequence, producer_id=alice.producer_id, producer_epoch=epoch
            )
            row = await mallory.send(forged)
            assert (row.error_code, row.base_offset) == (FOREIGN, -1)
    row = await alice.produce("out", b"of alice 2")
    assert (row.error_code, row.base_offset) == (0, 1)
    assert await alice.end() == 0
    assert await values(alice.wire) == [b"of alice 1", b"of alice 2"]
    assert await values(alice.wire, 0) == [b"of alice 1", b"of alice 2"]


@pytest.mark.proves("foreign-producer-id")
async def test_no_batch_is_written_under_the_id_of_another_idempotent_producer(broker: Harness) -> None:
    alice, mallory = await user(broker, "alice"), await user(broker, "mallory")
    hers, its = await alice.new_producer(), await mallory.new_producer()
    assert (await alice.produce("out", idempotent(hers, 0, b"of alice 1"))).error_code == 0
    for epoch in (0, 1, 32_767):
        row = await mallory.produce("out", idempotent(hers, 1, b"of mallory", epoch=epoch), version=8)
        assert (row.error_code, row.base_offset) == (FOREIGN, -1)
        assert "InitProducerId" in (row.error_message or "")
    row = await alice.produce("out", idempotent(hers, 1, b"of alice 2"))
    assert (row.error_code, row.base_offset) == (0, 1)
    assert (await mallory.produce("out", idempotent(its, 0, b"of mallory"))).error_code == 0, "with an own id"
    assert await values(alice) == [b"of alice 1", b"of alice 2", b"of mallory"]
    (line,) = broker.log.of("foreign_producer_id")
    assert (line["principal"], line["producer_id"]) == ("User:mallory", hers)


@pytest.mark.proves("foreign-producer-id")
async def test_an_id_belongs_to_one_kind_of_producer(broker: Harness) -> None:
    """A plain producer cannot use the id of a transactional id, nor a transactional id that of a plain producer."""
    alice = await TransactionalProducer(await user(broker, "alice"), 2, "alices").init()
    other = await TransactionalProducer(alice.wire, 2, "another").init()
    plain = await alice.wire.new_producer()
    for producer_id, name in (
        (alice.producer_id, None),
        (alice.producer_id, "another"),
        (plain, "alices"),
        (plain, ""),
        (other.producer_id, "principal User:alice"),
    ):
        request = produce_request("out", idempotent(producer_id, 0, b"of nobody"))
        request.transactional_id = name
        assert (await alice.send(request)).error_code == FOREIGN, name
    assert (await alice.produce("out", b"of alice")).error_code == 0


@pytest.mark.proves("foreign-producer-id")
@pytest.mark.parametrize("producer_id", [0, 7, 999, 1 << 40, BOUND - 1, BOUND, BOUND + 1, 2**63 - 1])
async def test_an_id_that_was_never_given_out_is_refused(broker: Harness, producer_id: int) -> None:
    mallory = await user(broker, "mallory")
    assert (await mallory.produce("out", idempotent(producer_id, 0, b"guessed", epoch=32_767))).error_code == FOREIGN


@pytest.mark.proves("foreign-producer-id")
async def test_a_refused_batch_of_another_is_not_remembered(broker: Harness) -> None:
    """A batch that is refused with a retriable error holds back later batches of its producer, but only its own."""
    alice, mallory = await user(broker, "alice"), await user(broker, "mallory")
    hers = await alice.new_producer()
    assert broker.node is not None
    partition = broker.node.broker.topics.partition("out", 0)
    partition.resign()
    row = await mallory.produce("out", idempotent(hers, 0, b"of mallory", epoch=5))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(broker.node.broker.refused_batches) == 0
    row = await alice.produce("out", idempotent(hers, 0, b"of alice"))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(broker.node.broker.refused_batches) == 1


@pytest.mark.proves("foreign-producer-id")
async def test_offsets_are_not_committed_with_the_id_of_another(broker: Harness) -> None:
    alice = await TransactionalProducer(await user(broker, "alice"), 2, "alices").init()
    mallory = await TransactionalProducer(await user(broker, "mallory"), 2, "mallorys").init()
    for version in (3, 5):
        codes = await mallory.commit_offsets({0: 9}, version=version, topic="out", producer_id=alice.producer_id)
        assert codes == [FOREIGN]


@pytest.mark.proves("foreign-producer-id")
async def test_the_tag_of_an_id_cannot_be_tried_out(broker: Harness) -> None:
    alice, mallory = await user(broker, "alice"), await user(broker, "mallory")
    known, later = await mallory.new_producer(), await mallory.new_producer()
    assert (await mallory.produce("out", idempotent(known, 0, b"of mallory"))).error_code == 0
    for guess in range(REFUSALS_MAX):
        assert (await mallory.produce("out", idempotent(BOUND + guess, 0, b"guessed"))).error_code == FOREIGN
    guessed = await mallory.produce("out", idempotent(BOUND, 0, b"guessed"))
    honest = await mallory.produce("out", idempotent(later, 0, b"of mallory"))
    assert guessed.error_code == honest.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "the answer tells nothing"
    assert (await mallory.produce("out", idempotent(known, 1, b"of mallory"))).error_code == 0
    hers = await alice.new_producer()
    assert (await alice.produce("out", idempotent(hers, 0, b"of alice"))).error_code == 0
    assert [line["refused"] for line in broker.log.of("foreign_producer_id")] == [1, REFUSALS_MAX]
    await asyncio.sleep(REFUSALS_INTERVAL_S)
    assert (await mallory.produce("out", idempotent(later, 0, b"of mallory"))).error_code == 0


async def test_ids_stay_with_their_owners_over_a_restart(broker: Harness) -> None:
    hers = await (await user(broker, "alice")).new_producer()
    await broker.restart()
    alice, mallory = await user(broker, "alice"), await user(broker, "mallory")
    assert (await mallory.produce("out", idempotent(hers, 0, b"of mallory"))).error_code == FOREIGN
    assert (await alice.produce("out", idempotent(hers, 0, b"of alice"))).error_code == 0


async def test_a_lost_secret_costs_a_transactional_producer_one_initialisation(broker: Harness) -> None:
    alice = await TransactionalProducer(await user(broker, "alice"), 2, "alices").init()
    hers = await alice.wire.new_producer()
    assert (await alice.produce("out", b"of alice 1")).error_code == 0
    before = alice.producer_id
    assert broker.node is not None
    await broker.node.broker.store.transact([], [Delete(PRODUCER_ID_KEY)])
    await broker.restart()
    alice.wire = await user(broker, "alice")
    assert (await alice.produce("out", b"of alice 2")).error_code == FOREIGN
    assert (await alice.wire.produce("out", idempotent(hers, 0, b"of alice"))).error_code == FOREIGN
    request = InitProducerIdRequest(
        transactional_id="alices", transaction_timeout_ms=60_000, producer_id=before, producer_epoch=alice.epoch
    )
    answer = await alice.wire.call(request, 4)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != before
    again = await alice.wire.call(request, 4)
    assert (again.producer_id, again.producer_epoch) == (answer.producer_id, 0), "the retry of a lost answer"
    alice.producer_id, alice.epoch = answer.producer_id, answer.producer_epoch
    assert (await alice.send(alice.produce_request("out", b"of alice 3", sequence=0))).error_code == 0
    assert await alice.end() == 0
    assert (await values(alice.wire))[-1] == b"of alice 3"
