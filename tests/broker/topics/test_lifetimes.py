"""What is deleted is freed with the last reference to it: a cycle of frozen objects would stay until a quiet moment."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from broker.crashable_broker import CrashableBroker, write
from semel_broker.cluster.operations import Operations
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.scheduling import turns
from semel_broker.scheduling.turns import Turns
from semel_protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.proves("wide-request-memory")


@pytest.fixture(autouse=True)
def reference_counts_alone() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_deleted_topic_leaves_neither_partitions_nor_logs(durability: str) -> None:
    machine = CrashableBroker(durability=durability)
    topics = await machine.start()
    await topics.create(NewTopic(name="t"))
    await write(topics, "t", 0, b"first")
    partition = topics.partition("t", 0)
    log = partition.log
    alive = [weakref.ref(each) for each in (partition, log, partition.durability, log.durability, log.active)]
    del partition, log
    await topics.delete("t")
    for _ in range(3):
        await asyncio.sleep(0)  # the loop forgets the tasks that have ended
    assert [each() for each in alive] == [None] * len(alive)


async def test_the_partitions_of_a_wide_topic_are_freed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_STEPS", 16)
    machine = CrashableBroker()
    topics = await machine.start()
    await topics.create(NewTopic(name="t", partitions=300))
    alive = []
    for index in range(300):
        await write(topics, "t", index, b"first")
        partition = topics.partition("t", index)
        alive += [weakref.ref(partition), weakref.ref(partition.log)]
        del partition
    deletion = asyncio.create_task(topics.delete("t"))
    left, most = len(alive), 0
    while not deletion.done():
        await asyncio.sleep(0)
        before, left = left, sum(each() is not None for each in alive)
        most = max(most, before - left)
    await deletion
    assert left == 0
    assert most <= 32, "so many were freed in one turn: each has some 30 objects"


async def test_an_offline_partition_keeps_no_frames_of_the_requests_that_it_refuses() -> None:
    machine = CrashableBroker()
    topics = await machine.start()
    await topics.create(NewTopic(name="t"))
    partition = topics.partition("t", 0)
    error = partition.take_offline("damaged")
    for _ in range(3):
        with pytest.raises(KafkaError):
            partition.check_leading()
        with pytest.raises(KafkaError):
            partition.open()
    assert _frames(error) <= 2


async def test_errors_of_elections_keep_no_frames() -> None:
    machine = CrashableBroker(num_partitions="3")
    topics = await machine.start()
    topic = await topics.create(NewTopic(name="t"))
    loop = asyncio.get_running_loop()
    operations = Operations(machine.store, topics.feed, machine.log, Turns(loop, loop.time).slices())
    places = [(topic.record.topic_id, index) for index in range(3)]
    refused = await operations.elect(places, unclean=False)
    assert {error.code for error in refused.values()} == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert [_frames(error) for error in refused.values()] == [0, 0, 0]


def _frames(error: BaseException) -> int:
    """The number of frames that an exception keeps."""
    count, traceback = 0, error.__traceback__
    while traceback is not None:
        count, traceback = count + 1, traceback.tb_next
    return count
