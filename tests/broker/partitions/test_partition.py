"""The partition alone: when an append is committed, and which waiters wake, over a log whose syncs the test holds."""

import asyncio
from random import Random

import pytest
from broker.wire import batch
from semel_broker.partitions.partition import LOG_END, Partition
from semel_broker.partitions.replicas import Replicas
from semel_broker.scheduling.waiters import FetchWaiter, OffsetWaiters
from semel_broker.world import World
from semel_protocol.batch import iterate, read_header, stamp
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig


class HeldPartition(Partition):
    """A partition whose syncs wait for `let()`."""

    def __init__(self, *, fsync: bool, config: LogConfig | None = None) -> None:
        disk = MemoryDisk()
        self.syncs = 0
        self.gate = asyncio.Semaphore(0)

        def open_log() -> Log:
            log = Log.open(disk, "t-0", config or LogConfig(), now_ms=0)

            async def held_sync() -> None:
                self.syncs += 1
                end = log.end_offset  # what comes later is not in it
                await self.gate.acquire()
                log.durability.synced_offset = end

            log.durability.sync = held_sync  # type: ignore[method-assign]
            return log

        world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=disk)
        super().__init__("t", 0, open_log=open_log, world=world, fsync=fsync)

    def put(self, *values: bytes) -> int:
        data = batch(*(values or (b"x",)))
        return self.append(data, header=read_header(data)).last_offset

    async def let(self) -> None:
        self.gate.release()
        for _ in range(20):
            await asyncio.sleep(0)


async def test_without_fsync_an_append_is_committed_at_once() -> None:
    partition = HeldPartition(fsync=False)
    assert partition.put() == 0
    assert partition.high_watermark == 1
    await partition.committed(1)
    assert partition.syncs == 0


async def test_without_fsync_a_sync_begins_after_flush_messages_and_nothing_waits_for_it() -> None:
    partition = HeldPartition(fsync=False, config=LogConfig(flush_messages=3))
    partition.put(b"1", b"2")
    await asyncio.sleep(0)
    assert (partition.high_watermark, partition.syncs) == (2, 0)
    partition.put(b"3")
    await asyncio.sleep(0)
    assert (partition.high_watermark, partition.syncs) == (3, 1)
    partition.put(b"4", b"5", b"6")
    await asyncio.sleep(0)
    assert (partition.high_watermark, partition.syncs) == (6, 1), "one at a time"
    await partition.let()
    assert partition.syncs == 2, "for what came meanwhile"
    await partition.let()
    assert (partition.log.durability.synced_offset, partition.syncs) == (6, 2)


async def test_without_fsync_a_sync_begins_flush_ms_after_an_append() -> None:
    partition = HeldPartition(fsync=False, config=LogConfig(flush_ms=1))
    partition.put()
    async with asyncio.timeout(10):
        while not partition.syncs:
            await asyncio.sleep(0.001)
    partition.put()
    await partition.let()
    async with asyncio.timeout(10):
        while partition.syncs < 2:
            await asyncio.sleep(0.001)
    await partition.let()
    assert partition.log.durability.synced_offset == 2


async def test_appends_of_one_turn_share_a_sync_and_later_ones_the_next() -> None:
    partition = HeldPartition(fsync=True)
    for _ in range(3):
        partition.put()
    first = asyncio.ensure_future(partition.committed(3))
    await asyncio.sleep(0.001)
    for _ in range(4):
        partition.put()
    second = asyncio.ensure_future(partition.committed(7))
    assert (partition.high_watermark, partition.syncs) == (0, 1)
    await partition.let()
    assert (partition.high_watermark, first.done(), second.done(), partition.syncs) == (3, True, False, 2)
    await partition.let()
    assert (partition.high_watermark, second.done(), partition.syncs) == (7, True, 2)


@pytest.mark.parametrize("turns", range(12))
async def test_an_append_in_any_turn_of_an_ending_flush_is_committed(turns: int) -> None:
    partition = HeldPartition(fsync=True)
    partition.put()
    await asyncio.sleep(0)
    partition.gate.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    partition.put()
    partition.gate.release()
    async with asyncio.timeout(2):
        await partition.committed(2)


async def test_nothing_is_read_above_the_high_watermark() -> None:
    partition = HeldPartition(fsync=True)
    partition.put(b"a", b"b")
    assert partition.read(0, bytes_max=1000) == b""
    assert partition.read(1, bytes_max=1000) == b""  # within the log, if not yet readable: no error
    with pytest.raises(KafkaError) as refused:
        partition.read(3, bytes_max=1000)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    await asyncio.sleep(0)
    await partition.let()
    assert partition.read(0, bytes_max=1000) != b""


async def test_retiring_answers_all_waiting_requests() -> None:
    partition = HeldPartition(fsync=True)
    partition.put()
    committed = asyncio.ensure_future(partition.committed(1))
    waiter = FetchWaiter(asyncio.get_running_loop(), 10_000)
    partition.add_fetch_waiter(waiter)
    await asyncio.sleep(0)
    partition.retire()
    assert waiter.future.done()
    with pytest.raises(KafkaError) as refused:
        await committed
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError):
        partition.put()
    late = FetchWaiter(asyncio.get_running_loop(), 10_000)
    partition.add_fetch_waiter(late)
    assert late.future.done()
    await partition.let()


async def test_fetch_waiters_count_the_bytes_that_became_readable() -> None:
    partition = HeldPartition(fsync=False)
    size = len(batch(b"x"))
    waiter = FetchWaiter(asyncio.get_running_loop(), 3 * size)
    partition.add_fetch_waiter(waiter)
    partition.put()
    partition.put()
    assert not waiter.future.done()
    partition.put()
    assert waiter.future.done()
    assert partition.view.bytes_visible == 3 * size


async def test_offset_waiters_are_done_in_order_of_offset_and_only_up_to_it() -> None:
    waiters, loop = OffsetWaiters(), asyncio.get_running_loop()
    futures = {offset: waiters.wait_for(offset, loop) for offset in (5, 3, 9, 4)}
    waiters.reached(4)
    assert [offset for offset, future in sorted(futures.items()) if future.done()] == [3, 4]
    futures[9].cancel()
    waiters.reached(100)
    assert futures[5].done()
    assert len(waiters) == 0


def test_a_partition_continues_with_the_leader_epoch_of_its_log() -> None:
    """The files of another broker contain its epochs.

    New appends must not have lower ones. In `__transaction_state` this epoch is also the coordinator epoch of the
    markers.
    """
    disk = MemoryDisk()
    data = batch(b"x")
    Log.open(disk, "t-0", LogConfig(), now_ms=0).append(data, header=read_header(data), leader_epoch=22, now_ms=0)
    world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=disk)
    partition = Partition(
        "t", 0, open_log=lambda: Log.open(disk, "t-0", LogConfig(), now_ms=0), world=world, fsync=False
    )
    assert partition.leader_epoch == 0, "nothing is known yet"
    partition.open()
    assert partition.leader_epoch == 22
    data = batch(b"y")
    partition.append(data, header=read_header(data))
    headers = [header for header, _ in iterate(partition.read(0, bytes_max=10_000))]
    assert [header.partition_leader_epoch for header in headers] == [22, 22]


@pytest.mark.parametrize("takes_turns", [False, True])
async def test_records_that_a_checkpoint_has_synced_are_committed(takes_turns: bool) -> None:
    """A checkpoint of the cleaner may sync an append before the flusher or its task does, without a notice."""
    disk = MemoryDisk()
    world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=disk)
    log = Log.open(disk, "t-0", LogConfig(), now_ms=0)
    partition = Partition("t", 0, open_log=lambda: log, world=world, fsync=True)
    data = batch(b"x")
    partition.append(data, header=read_header(data))
    if takes_turns:
        await log.durability.checkpoint()
    else:
        log.segments[-1].file.sync_now()
        log.durability.note_synced()
    assert log.durability.synced_offset == 1
    assert takes_turns or partition.high_watermark == 0
    async with asyncio.timeout(5):
        await partition.committed(1)
    await partition.close()


def following(partition: HeldPartition) -> HeldPartition:
    partition.open()
    partition.become_follower(leader=2, epoch=1)
    return partition


def replicated(*values: bytes, base_offset: int) -> bytes:
    data = bytearray(batch(*values))
    stamp(data, base_offset, 1)
    return bytes(data)


@pytest.mark.parametrize("isolation", [0, 1])
async def test_a_consumer_waits_at_a_follower_for_its_high_watermark(isolation: int) -> None:
    """KIP-392."""
    partition = following(HeldPartition(fsync=False))
    data = replicated(b"one", b"two", base_offset=0)
    partition.append_replicated(data, leader_epoch=1, high_watermark=0)
    waiter = FetchWaiter(asyncio.get_running_loop(), 2)
    partition.add_fetch_waiter(waiter, isolation)
    partition.check_readable()
    assert partition.read(0, bytes_max=1000, isolation=isolation) == b""
    assert not waiter.future.done()
    partition.note_leader(high_watermark=2)
    assert waiter.future.done()
    assert partition.read(0, bytes_max=1000, isolation=isolation) == data


async def test_a_wait_at_a_follower_ends_with_its_role_and_outlives_a_truncation() -> None:
    partition = following(HeldPartition(fsync=False))
    partition.append_replicated(replicated(b"one", base_offset=0), leader_epoch=1, high_watermark=1)
    partition.append_replicated(replicated(b"lost", b"too", base_offset=1), leader_epoch=1, high_watermark=1)
    partition.truncate_to(1)
    await partition.changed()
    waiter = FetchWaiter(asyncio.get_running_loop(), 1)
    partition.add_fetch_waiter(waiter)
    partition.append_replicated(replicated(b"two", base_offset=1), leader_epoch=1, high_watermark=1)
    assert not waiter.future.done()
    partition.note_leader(high_watermark=2)
    assert waiter.future.done()
    partition.resign()
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        partition.check_readable()
    waiter = FetchWaiter(asyncio.get_running_loop(), 1)
    partition.add_fetch_waiter(waiter)
    assert waiter.future.done()


async def test_a_replica_does_not_wait_at_a_follower() -> None:
    partition = following(HeldPartition(fsync=False))
    waiter = FetchWaiter(asyncio.get_running_loop(), 1)
    partition.add_fetch_waiter(waiter, LOG_END)
    assert waiter.future.done()


async def follower_of(*values: bytes) -> Partition:
    """A follower with these records, all synced and none committed."""
    disk = MemoryDisk()
    world = World(now_ms=lambda: 0, monotonic=lambda: 0.0, rng=Random(1), disk=disk)
    partition = Partition(
        "t", 0, open_log=lambda: Log.open(disk, "t-0", LogConfig(), now_ms=0), world=world, fsync=True
    )
    partition.open()
    partition.become_follower(leader=2, epoch=1)
    partition.append_replicated(replicated(*values, base_offset=0), leader_epoch=1, high_watermark=0)
    await partition.synced()
    return partition


async def test_a_replica_under_truncation_is_neither_read_nor_led_and_begins_its_epoch_afterwards() -> None:
    partition = await follower_of(b"one", b"two", b"three")
    partition.truncate_to(0)
    refused = pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER")
    with refused:
        partition.check_readable()
    with refused:
        partition.read_replica(0, bytes_max=1000)
    partition.become_leader(2, Replicas(1, (1, 2), [1, 2], epoch_start_offset=partition.end_offset, now_ms=0))
    with refused:
        partition.check_leading()
    await partition.changed()
    partition.check_leading()
    assert (partition.end_offset, partition.log.epochs.entries) == (0, [(2, 0)])
    data = batch(b"new")
    assert partition.append(data, header=read_header(data), acks_all=False).base_offset == 0
    await partition.close()


async def test_a_partition_that_is_closed_amid_a_truncation_waits_for_it() -> None:
    partition = await follower_of(b"one")
    partition.truncate_to(0)
    await partition.close()
    assert not partition.is_changing
    assert partition.end_offset == 0
    partition.log.close()
