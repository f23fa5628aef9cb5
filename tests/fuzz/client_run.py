"""Whole clients with altered answers: each call succeeds or raises a client error in time, and clients recover."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

from fuzz.altered_answers import AlteringEdge
from fuzz.fuzzed_broker import FuzzedBroker
from semel.admin import Admin
from semel.consumer import Consumer
from semel.errors import KafkaError
from semel.producer import Producer
from semel.structs import TopicPartition

TIMEOUT_S = 900.0
"""In virtual time. Longer than any timeout of a client with default settings, also of its stop."""
TOPIC = "t"
ROUNDS = 4


class UnexpectedErrors(logging.Handler):
    """Collects the exceptions that clients log and that are not KafkaErrors: a part of the client has failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and not isinstance(record.exc_info[1], KafkaError):
            self.lines.append(logging.Formatter().format(record))


class ClientRun:
    """One target, one altering edge, and one client of each kind."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.target = FuzzedBroker.open(auto_create_topics_enable="false")
        self.edge = AlteringEdge(self.target.loop, random, random.choice((0.05, 0.2, 0.6)))
        self.raised: list[str] = []
        """The client errors that were raised. They are allowed."""

    def run(self) -> int:
        """Return the number of altered answers."""
        logger, unexpected = logging.getLogger("semel"), UnexpectedErrors()
        logger.addHandler(unexpected)
        try:
            return self._run()
        finally:
            logger.removeHandler(unexpected)
            assert not unexpected.lines, "\n".join([*unexpected.lines, *self.raised])

    def _run(self) -> int:
        target = self.target
        jobs = [self.produce, self.transact, self.consume, self.administer]
        self.random.shuffle(jobs)
        for job in jobs[: self.random.choice((1, 2, 4))]:
            target.run(self._in_time(job))
            self.check(job.__name__)
        self.edge.is_altering = False
        target.run(self._in_time(self.all_is_well))
        self.check("afterwards")
        target.run(target.other_client.leave())
        target.run(target.node.stop())
        self.check("at the end")
        target.loop.close()
        return self.edge.altered_count

    def check(self, when: str) -> None:
        """Assert that no exception reached the loop, and the target's invariants."""
        assert not self.target.loop.errors, f"{when}: {self.target.loop.errors}"
        self.target.check()

    async def _in_time(self, job: Callable[[], Awaitable[None]]) -> None:
        before = set(asyncio.all_tasks())
        try:
            async with asyncio.timeout(TIMEOUT_S * 4):
                await job()
        except TimeoutError:
            raise AssertionError(f"{job.__name__} hangs") from None
        await asyncio.sleep(1)
        left = [task for task in asyncio.all_tasks() if task not in before and "semel" in repr(task.get_coro())]
        left = [task for task in left if "semel_broker" not in repr(task.get_coro())]
        assert not left, f"{job.__name__} leaves tasks behind: {left}"

    async def _may_fail(self, call: Coroutine[Any, Any, Any], what: str) -> Any:
        """The result of a client's call, or None when it raised one of its own errors."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await call
        except KafkaError as error:
            self.raised.append(f"{what}: {error}")
        except TimeoutError:
            raise AssertionError(f"{what} hangs") from None
        return None

    @property
    def _common(self) -> dict[str, Any]:
        return {"bootstrap_servers": f"127.0.0.1:{self.target.node.port}", "edge": self.edge}

    # --- client calls -------------------------------------------------------------------------------------

    async def produce(self) -> None:
        producer = Producer(**self._common)
        if await self._may_fail(_succeeded(producer.start()), "producer.start"):
            for n in range(ROUNDS):
                await self._may_fail(producer.send_and_wait(TOPIC, b"%d" % n), "send_and_wait")
        await self._may_fail(producer.stop(), "producer.stop")

    async def transact(self) -> None:
        producer = Producer(**self._common, transactional_id="lied-to")
        if await self._may_fail(_succeeded(producer.start()), "transactional producer.start"):
            for n in range(ROUNDS):
                await self._may_fail(self._transaction(producer, n), "transaction")
        await self._may_fail(producer.stop(), "transactional producer.stop")

    async def _transaction(self, producer: Producer, n: int) -> None:
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"in transaction %d" % n)
            if n % 2:
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): n}, "lied-to")

    async def consume(self) -> None:
        consumer = Consumer(
            TOPIC, **self._common, group_id="lied-to", auto_offset_reset="earliest", isolation_level="read_committed"
        )
        if await self._may_fail(_succeeded(consumer.start()), "consumer.start"):
            for _ in range(ROUNDS):
                await self._may_fail(consumer.getmany(timeout_ms=2000), "getmany")
                await self._may_fail(consumer.commit(), "commit")
            await self._may_fail(consumer.offsets_for_times({TopicPartition(TOPIC, 0): 5}), "offsets_for_times")
            await self._may_fail(consumer.committed(TopicPartition(TOPIC, 0)), "committed")
        await self._may_fail(consumer.stop(), "consumer.stop")

    async def administer(self) -> None:
        admin = Admin(**self._common)
        if await self._may_fail(_succeeded(admin.start()), "admin.start"):
            calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                admin.list_topics,
                admin.describe_topics,
                admin.describe_cluster,
                admin.list_consumer_groups,
                admin.list_transactions,
                lambda: admin.describe_consumer_groups(["g"]),
                lambda: admin.list_consumer_group_offsets("g"),
                lambda: admin.describe_transactions(["open"]),
                lambda: admin.describe_producers([TopicPartition(TOPIC, 1)]),
                lambda: admin.list_offsets({TopicPartition(TOPIC, 0): -1}),
            ]
            for call in self.random.sample(calls, ROUNDS):
                await self._may_fail(call(), "admin")
        await self._may_fail(admin.close(), "admin.close")

    async def all_is_well(self) -> None:
        """Check that new clients work at once with unaltered answers."""
        async with Producer(**self._common) as producer:
            at = await producer.send_and_wait(TOPIC, b"well", partition=0)
        async with Consumer(**self._common) as consumer:
            partition = TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, at.offset)
            record = await consumer.getone()
        assert record.value == b"well"


async def _succeeded(call: Coroutine[Any, Any, Any]) -> bool:
    await call
    return True
