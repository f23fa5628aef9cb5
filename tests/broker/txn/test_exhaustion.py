"""The last epochs of a producer id and the id that replaces it, with a power cut at every step of the change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest
from broker.coordination.owners import owners
from broker.txn.transaction_broker import TIMEOUT_MS, TransactionBroker
from semel_broker.coordination.producer_owners import transactional_owner
from semel_broker.txn.model.identity import EPOCH_LAST, EPOCH_MAX, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason
from semel_broker.txn.model.metadata import EMPTY, TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import TRANSACTION_STATE

OLD = ProducerIdentity(owners().bind(transactional_owner("t"), 5_000), EPOCH_LAST)
STEPS = range(0, 30, 2)
"""Turns of the loop until the power is cut: from before the first write to after the last."""


@pytest.fixture
async def one() -> AsyncIterator[TransactionBroker]:
    """The id "t" has its last epoch, and a transaction open with it."""
    made = await TransactionBroker(transaction_abort_timed_out_transaction_cleanup_interval_ms="1").open()
    await made.init("somebody else")  # the topic is there
    before = TransactionMetadata(
        transactional_id="t",
        producer_id=OLD.producer_id,
        producer_epoch=EPOCH_LAST - 1,
        timeout_ms=TIMEOUT_MS,
        state=EMPTY,
        last_update_ms=made.wall_ms,
    )
    data = bytearray(build_batch([Record(0, made.wall_ms, *row_of(before))]))
    log = made.topics.partition(TRANSACTION_STATE, coordinator_partition("t", 50))
    await log.committed(log.append(data, header=read_header(data)).last_offset + 1)
    await made.restart()
    assert await made.init() == OLD
    await made.begin(OLD, version=2)
    yield made
    await made.close()


async def cut_power_after(one: TransactionBroker, steps: int, work: Callable[[], Awaitable[object]]) -> None:
    """Begin `work` and cut the power meanwhile. Its result or error is dropped."""
    working = asyncio.ensure_future(work())
    for _ in range(steps):
        await asyncio.sleep(0)
    one.transactions._expiry.stop()  # the dead do not sweep
    await asyncio.sleep(0)
    await one.lose_power(Random(steps))
    working.cancel()
    await asyncio.wait([working])
    if not working.cancelled():
        working.exception()


async def assert_fenced(one: TransactionBroker, producer: ProducerIdentity) -> None:
    with pytest.raises(KafkaError) as refused:
        await one.add(producer, version=2)
    assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def assert_ended(one: TransactionBroker, kind: str) -> None:
    for index in (0, 1):
        assert not one.is_open(index)
        assert {found for _, found in one.markers(index)} == {kind}
        assert {epoch for epoch, _ in one.markers(index)} == {EPOCH_MAX}, "above the epoch of the data"


@pytest.mark.proves("epochs-used-up")
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("commit", [True, False])
async def test_epoch_exhaustion_at_the_end_of_a_transaction_over_a_failover_at_each_step(
    one: TransactionBroker, commit: bool, steps: int
) -> None:
    await cut_power_after(one, steps, lambda: one.end(OLD, commit, version=2))
    new = await one.end(OLD, commit, version=2)
    assert new.epoch == 0
    assert new.producer_id != OLD.producer_id
    assert_ended(one, "COMMIT" if commit else "ABORT")
    assert await one.end(OLD, commit, version=2) == new, "and a repeated request gets the same answer"
    await assert_fenced(one, OLD)
    await one.begin(new, version=2)
    assert (await one.end(new, version=2)).producer_id == new.producer_id


@pytest.mark.proves("epochs-used-up")
@pytest.mark.parametrize("steps", STEPS)
async def test_epoch_exhaustion_on_a_timeout_abort_over_a_failover_at_each_step(
    one: TransactionBroker, steps: int
) -> None:
    one.wall_ms += TIMEOUT_MS + 1
    await cut_power_after(one, steps, lambda: one.until_state("CompleteAbort"))
    await one.until_state("CompleteAbort")
    assert_ended(one, "ABORT")
    await assert_fenced(one, OLD)
    new = await one.init()
    assert new.epoch == 0
    assert new.producer_id != OLD.producer_id


@pytest.mark.proves("epochs-used-up")
@pytest.mark.parametrize("steps", STEPS)
async def test_epoch_exhaustion_under_a_new_instance_over_a_failover_at_each_step(
    one: TransactionBroker, steps: int
) -> None:
    await cut_power_after(one, steps, one.init)
    new = await one.init()
    assert new.producer_id != OLD.producer_id
    assert new.epoch <= 1, "1 if the first one got through, and was fenced by the second"
    assert_ended(one, "ABORT")
    await assert_fenced(one, OLD)
    await one.begin(new, version=2)
    await one.end(new, version=2)


@pytest.mark.proves("commit-and-timeout")
@pytest.mark.parametrize("commit_first", [True, False])
@pytest.mark.parametrize("late_ms", [0, 1])
async def test_commit_racing_the_timeout_abort_by_1_ms(
    one: TransactionBroker, late_ms: int, commit_first: bool
) -> None:
    """Both run in one turn of the loop. One wins, the log has only its marker, and the producer gets this outcome."""
    one.wall_ms += TIMEOUT_MS + late_ms
    surprises: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
    expiry = one.transactions._expiry
    if not commit_first:
        expiry.abort_due()
    ending = asyncio.ensure_future(one.end(OLD, True, version=2))
    if commit_first:
        await asyncio.sleep(0)
        expiry.abort_due()
    await asyncio.wait([ending])
    if late_ms and not commit_first:
        error = ending.exception()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.PRODUCER_FENCED
        assert "open for 60001 ms, allowed were 60000 ms" in error.message
        await one.until_state("CompleteAbort")
        assert_ended(one, "ABORT")
    else:
        assert ending.result().epoch == 0
        await one.until_state("CompleteCommit")
        assert_ended(one, "COMMIT")
    expiry.abort_due()
    await expiry.stopped()  # the sweeps that came too late have found nothing to do
    kind = {fence.reason for fence in one.transactions.fences("t")}
    assert (FenceReason.TIMED_OUT in kind) is bool(late_ms and not commit_first)
    assert surprises == []
