"""The end of clients: records in hand, calls of stop from callbacks and from other tasks, and clients that are
dropped.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from client.consuming import produce, take, tp
from client.fake_broker import SILENT, FakeBroker
from semel import Admin, Consumer, ConsumerRebalanceListener, Producer
from semel.errors import KafkaError

Ending = Callable[[Consumer], Awaitable[None]]


def consumer_of(bootstrap: str, **settings: Any) -> Consumer:
    merged = {"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 60_000, **settings}
    return Consumer("t", bootstrap_servers=bootstrap, **merged)


async def committed(bootstrap: str) -> int | None:
    async with Consumer(bootstrap_servers=bootstrap, group_id="g") as other:
        return await other.committed(tp(0))


async def application_at_work(consumer: Consumer) -> asyncio.Task[None]:
    """An application that has taken three records and processes them."""
    await consumer.start()
    has_records = asyncio.Event()

    async def work() -> None:
        await take(consumer, 3)
        has_records.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await has_records.wait()
    return task


async def is_cancelled_at_work(consumer: Consumer) -> None:
    """The application is cancelled while it processes records, and stops in `finally`."""
    await consumer.start()
    at_work = asyncio.Event()

    async def work() -> None:
        try:
            await take(consumer, 3)
            at_work.set()
            await asyncio.Event().wait()
        finally:
            await consumer.stop()

    task = asyncio.create_task(work())
    await at_work.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def is_cancelled_in_async_with(consumer: Consumer) -> None:
    with anyio.move_on_after(5):
        async with consumer:
            await take(consumer, 3)
            await anyio.sleep_forever()
    await asyncio.sleep(2)


async def raises_and_stops(consumer: Consumer) -> None:
    async def work() -> None:
        await consumer.start()
        try:
            await take(consumer, 3)
            raise ZeroDivisionError
        finally:
            await consumer.stop()

    with pytest.raises(ZeroDivisionError):
        await work()


async def raises_in_async_with(consumer: Consumer) -> None:
    async def work() -> None:
        async with consumer:
            await take(consumer, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()


async def is_stopped_by_its_supervisor(consumer: Consumer) -> None:
    """Another task stops the consumer, after it has cancelled the application's."""
    task = await application_at_work(consumer)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await consumer.stop()


async def is_stopped_at_work(consumer: Consumer) -> None:
    """Another task stops the consumer while the application processes records."""
    task = await application_at_work(consumer)
    await consumer.stop()
    task.cancel()


@pytest.mark.parametrize(
    "ending",
    [
        is_cancelled_at_work, is_cancelled_in_async_with, raises_and_stops, raises_in_async_with,
        is_stopped_by_its_supervisor, is_stopped_at_work,
    ],
)  # fmt: skip
async def test_records_that_were_not_processed_are_not_committed(bootstrap: str, ending: Ending) -> None:
    await produce(bootstrap, [b"%d" % number for number in range(5)])
    await ending(consumer_of(bootstrap))
    assert not await committed(bootstrap)


async def stops(consumer: Consumer) -> None:
    await consumer.start()
    await take(consumer, 3)
    await consumer.stop()


async def stops_within_a_time(consumer: Consumer) -> None:
    """`wait_for` of Python 3.11 makes a task of its own for the call."""
    await consumer.start()
    await take(consumer, 3)
    await asyncio.wait_for(consumer.stop(), 10)


async def ends_its_task(consumer: Consumer) -> None:
    await consumer.start()
    await asyncio.create_task(take(consumer, 3))
    await consumer.stop()


async def ends_async_with(consumer: Consumer) -> None:
    async with consumer:
        await take(consumer, 3)


@pytest.mark.parametrize("ending", [stops, stops_within_a_time, ends_its_task, ends_async_with])
async def test_records_that_were_processed_are_committed(bootstrap: str, ending: Ending) -> None:
    await produce(bootstrap, [b"%d" % number for number in range(5)])
    await ending(consumer_of(bootstrap))
    assert await committed(bootstrap) == 3


# Calls from inside


class Stopper(ConsumerRebalanceListener):
    """Stops its consumer in one of its methods. directly: without a task in between."""

    def __init__(self, method: str, *, directly: bool) -> None:
        self._method, self._directly = method, directly
        self.consumer: Consumer | None = None
        self.called: list[str] = []

    async def _call(self, method: str) -> None:
        self.called.append(method)
        if method == self._method:
            assert self.consumer is not None
            if self._directly:
                await self.consumer.stop()
            else:
                await asyncio.create_task(self.consumer.stop())

    async def on_partitions_revoked(self, revoked: list[Any]) -> None:
        await self._call("revoked")

    async def on_partitions_assigned(self, assigned: list[Any]) -> None:
        await self._call("assigned")

    async def on_partitions_lost(self, lost: list[Any]) -> None:
        await self._call("lost")


@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("method", ["assigned", "revoked"])
async def test_a_listener_may_stop_its_consumer(bootstrap: str, protocol: str, method: str, directly: bool) -> None:
    await produce(bootstrap, [b"a"])
    listener = Stopper(method, directly=directly)
    consumer = Consumer(bootstrap_servers=bootstrap, group_id="g", group_protocol=protocol)  # type: ignore[arg-type]
    listener.consumer = consumer
    consumer.subscribe(["t"], listener=listener)
    if method == "assigned":
        with pytest.raises(KafkaError, match="stopped while it started"):
            await consumer.start()
    else:
        await consumer.start()
        await consumer.stop()
    await consumer.stop()
    assert listener.called.count(method) == 1
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (group,) = await admin.describe_consumer_groups(["g"])
    assert not group.members


async def test_every_caller_waits_for_the_same_end(bootstrap: str) -> None:
    await produce(bootstrap, [b"a"])
    released = asyncio.Event()

    class BlockedListener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: list[Any]) -> None:
            await released.wait()

    consumer = Consumer(bootstrap_servers=bootstrap, group_id="g")
    consumer.subscribe(["t"], listener=BlockedListener())
    await consumer.start()
    calls = [asyncio.create_task(consumer.stop()) for _ in range(3)]
    await asyncio.sleep(30)
    assert not any(call.done() for call in calls), "heartbeats continue while the listener works"
    released.set()
    await asyncio.gather(*calls)


async def test_a_cancelled_stop_with_a_broker_that_does_not_answer_ends_in_a_moment(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([SILENT] * 100)
    producer = Producer(bootstrap_servers=fake_broker.address)
    await producer.start()
    future = await producer.send("t", b"a")
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await producer.stop()
    assert loop.time() - began < 0.6, "the caller does not wait"
    await producer.stop()
    assert loop.time() - began < 2
    with pytest.raises(KafkaError, match="stopped before the record was stored"):
        await future


async def test_a_start_that_is_stopped_says_so(bootstrap: str) -> None:
    consumer = consumer_of("127.0.0.1:1")
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(0.1)
    await consumer.stop()
    with pytest.raises(KafkaError, match="stopped while it started"):
        await starting


# Clients that are dropped


async def test_a_dropped_producer_says_how_many_records_are_lost(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.faults.extend([SILENT] * 100)
    producer = Producer(bootstrap_servers=fake_broker.address, client_id="shop")
    await producer.start()
    for value in (b"a", b"b"):
        await producer.send("t", value)
    life = producer._life
    with pytest.warns(ResourceWarning, match="unclosed Producer 'shop' was never stopped: 2 records were not stored"):
        life._drop_warning.__del__()  # as when the loop has ended and nothing holds the producer any more
    (line,) = [record.getMessage() for record in caplog.records if "never stopped" in record.getMessage()]
    assert line.startswith("Producer 'shop' was never stopped: 2 records were not stored; await its stop()")
    fake_broker.faults.clear()
    await producer.stop()


async def test_clients_that_were_stopped_or_never_started_are_dropped_in_silence(
    fake_broker: FakeBroker, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with Producer(bootstrap_servers=fake_broker.address) as producer:
        await producer.send("t", b"a")
    made = [producer, Admin(bootstrap_servers=fake_broker.address), consumer_of(fake_broker.address)]
    del producer
    made.clear()
    gc.collect()
    assert not [each for each in recwarn if "never stopped" in str(each.message)]
    assert not caplog.records
