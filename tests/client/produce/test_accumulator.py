"""The queue of one partition keeps its order through retries. The memory bound is fair, and all memory is returned."""

from __future__ import annotations

import asyncio

import pytest
from client.fake_broker import SequencedLog
from hypothesis import given, settings
from hypothesis import strategies as st
from semel._edge import Edge
from semel._produce.accumulator import Batch, BatchState, BufferMemory, PartitionQueue
from semel._produce.sequences import TransactionManager
from semel.errors import KafkaTimeoutError
from semel_protocol.errors import ErrorCode
from semel_protocol.records import BatchBuilder


def queue_with(count: int, loop: asyncio.AbstractEventLoop) -> PartitionQueue:
    queue = PartitionQueue("t", 0, loop)
    for number in range(count):
        batch = Batch(queue, BatchBuilder(), deadline=1e9, reserved_bytes=1)
        batch.append(0, None, b"%d" % number, ())
        queue.waiting.append(batch)
    return queue


def known_queue_with(count: int, manager: TransactionManager, connection: object) -> PartitionQueue:
    """A queue of a partition that has acknowledged a batch of this producer."""
    queue = queue_with(count + 1, asyncio.get_running_loop())
    manager.set_producer_id(1, 0)
    queue.acknowledged(queue.take(connection, manager))
    return queue


def send(
    queue: PartitionQueue, connection: object, manager: TransactionManager, log: SequencedLog
) -> tuple[Batch, int]:
    batch = queue.take(connection, manager)
    assert batch.stamp is not None
    stamp = batch.stamp
    return batch, log.append(batch.builder.build(stamp.producer_id, stamp.producer_epoch, stamp.base_sequence))[0]


@settings(max_examples=150, deadline=None)
@given(choices=st.lists(st.integers(0, 4), max_size=60), count=st.integers(1, 12))
def test_any_interleaving_of_sends_losses_and_answers_keeps_order_without_duplicates(
    choices: list[int], count: int
) -> None:
    """0 sends, 1 takes the oldest answer, 2 loses every answer, 3 loses a request before it arrives, 4 sends a batch
    that is refused, as by a broker that does not lead yet.
    """
    loop = asyncio.new_event_loop()
    try:
        queue, log, manager = queue_with(count, loop), SequencedLog(), TransactionManager()
        manager.set_producer_id(1, 0)
        connection = object()
        answers: list[tuple[Batch, int]] = []
        for choice in [*choices, *[0, 1] * 400]:
            if choice == 0 and queue.may_send(connection) and queue.in_flight < 5:
                answers.append(send(queue, connection, manager, log))
            elif choice == 4 and queue.may_send(connection) and queue.in_flight < 5:
                answers.append((queue.take(connection, manager), ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif choice == 1 and answers:
                batch, code = answers.pop(0)
                queue.acknowledged(batch) if code == 0 else queue.retry(batch)
            elif choice == 2 or (choice == 3 and queue.may_send(connection)):
                if choice == 3:
                    answers.append((queue.take(connection, manager), 0))
                for batch, _ in answers:
                    queue.retry(batch)
                answers.clear()
                connection = object()
        assert log.values == [b"%d" % number for number in range(count)]
        assert not queue.sent
        assert not queue.waiting
    finally:
        loop.close()


@pytest.mark.proves("order-over-retries")
async def test_nothing_newer_is_sent_while_a_batch_has_to_be_sent_again() -> None:
    manager, connection = TransactionManager(), object()
    queue = known_queue_with(3, manager, connection)
    first, second = queue.take(connection, manager), queue.take(connection, manager)
    queue.retry(first)
    assert not queue.may_send(connection)
    queue.retry(second)
    assert [batch.stamp and batch.stamp.base_sequence for batch in queue.waiting] == [1, 2, None]


@pytest.mark.proves("batch-before-its-predecessor")
async def test_nothing_follows_the_first_batch_of_a_producer_before_it_is_acknowledged() -> None:
    manager, connection = TransactionManager(), object()
    manager.set_producer_id(1, 0)
    queue = queue_with(4, asyncio.get_running_loop())
    first = queue.take(connection, manager)
    assert not queue.may_send(connection), "the leader would accept the second and may have refused the first"
    queue.retry(first)
    assert queue.take(connection, manager) is first
    queue.acknowledged(first)
    second = queue.take(connection, manager)
    assert queue.may_send(connection)
    queue.retry(second)
    queue.needs_new_epoch = True
    queue.rewind(manager)
    queue.take(connection, manager)
    assert not queue.may_send(connection), "it may have been forgotten"


async def test_a_partition_that_knows_a_producer_has_its_next_epoch_pipelined() -> None:
    manager, connection = TransactionManager(), object()
    queue = known_queue_with(3, manager, connection)
    manager.set_producer_id(1, 1)  # as every transaction does
    queue.take(connection, manager)
    assert queue.may_send(connection), "its epochs begin at sequence 0, and the partition knows it"
    manager.set_producer_id(2, 0)
    queue.resolve(queue.sent[0])
    queue.take(connection, manager)
    assert not queue.may_send(connection)


async def test_without_idempotence_no_batch_waits_for_the_first() -> None:
    connection, queue = object(), queue_with(2, asyncio.get_running_loop())
    queue.take(connection, None)
    assert queue.may_send(connection)


async def test_a_partition_is_never_in_flight_on_two_connections() -> None:
    queue, manager, old, new = queue_with(2, asyncio.get_running_loop()), TransactionManager(), object(), object()
    manager.set_producer_id(1, 0)
    batch = queue.take(old, manager)
    assert not queue.may_send(new)
    queue.resolve(batch)
    assert queue.may_send(new)


async def test_after_an_abandoned_batch_batches_that_may_be_stored_are_not_renumbered() -> None:
    manager, connection = TransactionManager(), object()
    queue = known_queue_with(3, manager, connection)
    taken = [queue.take(connection, manager) for _ in range(3)]
    taken[1].maybe_stored = True
    for batch in taken:
        queue.retry(batch)
    queue.needs_new_epoch = queue.abandoned = True
    assert queue.rewind(manager) == [taken[1]]
    assert [batch.stamp for batch in queue.waiting] == [None] * 3


async def test_batches_before_one_that_was_refused_for_good_are_settled_under_their_epoch() -> None:
    manager, connection = TransactionManager(), object()
    queue = known_queue_with(5, manager, connection)
    first, second, refused, behind = (queue.take(connection, manager) for _ in range(4))
    first.maybe_stored = True
    queue.retry(first)
    queue.broken_by(refused)
    queue.resolve(refused)
    queue.retry(behind)
    queue.retry(second)
    assert list(queue.waiting)[:3] == [first, second, behind]
    assert not queue.is_ready_to_rewind
    for batch, sequence in ((first, 1), (second, 2)):
        assert queue.take(connection, manager) is batch
        assert batch.stamp is not None
        assert (batch.stamp.producer_epoch, batch.stamp.base_sequence) == (0, sequence)
    assert not queue.may_send(connection), "the next was numbered after the one that was refused"
    queue.acknowledged(first)
    assert not queue.is_ready_to_rewind
    queue.acknowledged(second)
    assert queue.is_ready_to_rewind
    assert queue.rewind(manager) == []
    assert queue.take(connection, manager) is behind
    assert behind.stamp is not None
    assert (behind.stamp.producer_epoch, behind.stamp.base_sequence) == (1, 0)


async def test_a_batch_that_met_a_gap_is_not_sent_again_before_the_new_epoch() -> None:
    manager, connection = TransactionManager(), object()
    queue = known_queue_with(2, manager, connection)
    gap, refused = queue.take(connection, manager), queue.take(connection, manager)
    queue.needs_new_epoch = True  # the partition has answered so to the first
    queue.retry(gap)
    queue.broken_by(refused)
    queue.resolve(refused)
    assert queue.is_ready_to_rewind


async def test_halves_of_a_batch_carry_its_sequences() -> None:
    queue, manager, connection = queue_with(0, asyncio.get_running_loop()), TransactionManager(), object()
    manager.set_producer_id(1, 0)
    whole = Batch(queue, BatchBuilder(), deadline=1e9, reserved_bytes=7)
    futures = [whole.append(0, None, b"%d" % n, ()) for n in range(5)]
    queue.waiting.append(whole)
    queue.take(connection, manager)
    parts = whole.halves(0)
    queue.replace(whole, parts)
    assert list(queue.waiting) == parts
    assert [part.stamp and part.stamp.base_sequence for part in parts] == [0, 2]
    assert [*parts[0].futures, *parts[1].futures] == futures
    assert sum(part.reserved_bytes for part in parts) == 7
    assert whole.state is BatchState.DONE


async def test_a_batch_that_is_done_cannot_be_resolved_again() -> None:
    queue = queue_with(1, asyncio.get_running_loop())
    batch = queue.waiting[0]
    queue.resolve(batch)
    with pytest.raises(AssertionError, match="DONE"):
        batch.move(BatchState.DONE)


async def test_memory_is_handed_out_in_the_order_of_asking() -> None:
    memory, order = BufferMemory(Edge(), 10), list[int]()

    async def take(size: int) -> None:
        await memory.reserve(size, 1000)
        order.append(size)

    await memory.reserve(10, 1000)
    tasks = [asyncio.create_task(take(size)) for size in (6, 1, 3)]
    await asyncio.sleep(0)
    memory.release(3)
    await asyncio.sleep(0)
    assert order == [], "the small one does not overtake"
    memory.release(7)
    await asyncio.gather(*tasks)
    assert order == [6, 1, 3]
    assert memory.free_bytes == 0


async def test_a_cancelled_wait_for_memory_leaves_nothing_behind() -> None:
    memory = BufferMemory(Edge(), 10)
    await memory.reserve(8, 1000)
    with pytest.raises(KafkaTimeoutError, match="buffer_memory=10"):
        await memory.reserve(5, 5)
    waiting = asyncio.create_task(memory.reserve(5, 1000))
    behind = asyncio.create_task(memory.reserve(2, 1000))
    await asyncio.sleep(0)
    waiting.cancel()
    await behind
    memory.release(8)
    memory.release(2)
    assert memory.free_bytes == 10


async def test_memory_granted_at_the_moment_of_cancelling_is_given_back() -> None:
    memory = BufferMemory(Edge(), 10)
    await memory.reserve(10, 1000)
    waiting = asyncio.create_task(memory.reserve(5, 1000))
    await asyncio.sleep(0)
    memory.release(10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert memory.free_bytes == 10
