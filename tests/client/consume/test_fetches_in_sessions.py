"""The fetcher in fetch sessions (KIP-227): its requests, its state, and sessions that end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker.harness import Harness
from client.consume.test_fetcher import FetchBroker, batches, consumer_of
from client.consuming import produce, take, tp, until
from msgspec.structs import replace
from semel.consumer import Consumer
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)


class SessionBroker(FetchBroker):
    """One fetch session at a time. `session_errors`: the errors of the next fetches that are of a session."""

    def __init__(self) -> None:
        super().__init__(3)
        self.session_id, self.epoch = 6, 0
        self.rows: dict[int, FetchRequestPartition] = {}
        self.known: dict[int, int] = {}
        self.session_errors: deque[int] = deque()
        self.refuse_all = 0

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        if self.refuse_all:
            return FetchResponse(error_code=self.refuse_all)
        if request.session_epoch == 0:
            self.session_id, self.epoch, self.rows, self.known = self.session_id + 1, 0, {}, {}
        elif self.session_errors:
            return FetchResponse(error_code=self.session_errors.popleft())
        else:
            assert (request.session_id, request.session_epoch) == (self.session_id, self.epoch)
        self.epoch += 1
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del self.rows[index], self.known[index]
        self.rows |= {row.partition: row for topic in request.topics for row in topic.partitions}
        topics = [FetchRequestTopic(topic="t", partitions=list(self.rows.values()))]
        response = await super().fetch(replace(request, topics=topics))
        rows = [row for row in response.responses[0].partitions if self.is_news(row)]
        return FetchResponse(
            session_id=self.session_id, responses=[FetchResponseTopic(topic="t", partitions=rows)] if rows else []
        )

    def is_news(self, row: FetchResponsePartition) -> bool:
        before, self.known[row.partition_index] = self.known.get(row.partition_index), row.high_watermark
        return bool(row.records or row.error_code or before != row.high_watermark)

    @property
    def asked(self) -> list[tuple[int, list[int], list[int]]]:
        """(epoch, partitions that are named, partitions that are forgotten) of each fetch."""
        return [
            (
                request.session_epoch,
                [row.partition for topic in request.topics for row in topic.partitions],
                [index for topic in request.forgotten_topics_data for index in topic.partitions],
            )
            for request in self.seen(1)
        ]


@pytest.fixture
async def sessions() -> AsyncIterator[SessionBroker]:
    async with SessionBroker() as broker:
        yield broker


async def polls(broker: FetchBroker, count: int = 3) -> None:
    """Wait until so many more fetches were sent."""
    before = len(broker.seen(1))
    await until(lambda: len(broker.seen(1)) >= before + count)


async def test_idle_partitions_are_named_once(sessions: SessionBroker) -> None:
    async with consumer_of(sessions) as consumer:
        await polls(sessions)
        for end in (10, 20, 50):
            sessions.put(1, *batches(end), end=end)
            assert (await take(consumer, end - (consumer.highwater(tp(1)) or 0)))[-1].offset == end - 1
    assert sessions.asked[0] == (0, [0, 1, 2], [])
    assert all(epoch > 0 and named in ([], [1]) for epoch, named, _ in sessions.asked[1:])


async def test_a_partition_without_news_was_fetched_when_the_answer_came(sessions: SessionBroker) -> None:
    sessions.put(1, *batches(7), end=7)
    async with consumer_of(sessions) as consumer:
        await take(consumer, 7)
        await polls(sessions)
        at = consumer.last_poll_timestamp(tp(1))
        assert at is not None
        await polls(sessions)
        later = consumer.last_poll_timestamp(tp(1))
        assert later is not None
        assert later > at
        assert (consumer.highwater(tp(0)), consumer.highwater(tp(1)), consumer.last_stable_offset(tp(1))) == (0, 7, 7)
        assert sessions.asked[-1][1:] == ([], [])


async def test_a_partition_that_is_assigned_again_has_its_offsets_although_nothing_is_new(
    sessions: SessionBroker,
) -> None:
    """Its state is new, but the session has not ended, and the broker does not send the offsets again."""
    sessions.put(1, *batches(7), end=7)
    async with consumer_of(sessions) as consumer:
        consumer.unsubscribe()
        consumer.assign([tp(0), tp(1)])
        await consumer.seek_to_end(tp(1))
        await polls(sessions)
        fetches = len(sessions.asked)
        consumer.assign([tp(0)])
        consumer.assign([tp(0), tp(1)])
        consumer.seek(tp(1), 7)
        await until(lambda: consumer.highwater(tp(1)) is not None)
        assert consumer.highwater(tp(1)) == 7
    assert all(tp(1).partition not in named for _, named, _ in sessions.asked[fetches:])


async def test_a_paused_partition_is_forgotten_and_comes_back(sessions: SessionBroker) -> None:
    async with consumer_of(sessions) as consumer:
        await polls(sessions)
        consumer.pause(tp(1))
        sessions.put(1, *batches(7), end=7)
        await polls(sessions)
        consumer.resume(tp(1))
        assert len(await take(consumer, 7)) == 7
    changes = [each[1:] for each in sessions.asked[1:] if each[1] or each[2]]
    assert changes[:2] == [([], [1]), ([1], [])]


async def test_a_partition_with_a_full_buffer_is_not_sent_again(sessions: SessionBroker) -> None:
    sessions.put(0, *batches(100, 1000), end=100)
    async with consumer_of(sessions, max_partition_fetch_bytes=20_000) as consumer:
        await until(lambda: sessions.rows.keys() == {1, 2})
        assert consumer._fetcher.buffered_bytes < 41_000
        assert [record.offset for record in await take(consumer, 100)] == list(range(100))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
async def test_a_lost_session_costs_one_full_fetch_and_no_pause(
    sessions: SessionBroker, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with consumer_of(sessions, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as consumer:
        await polls(sessions)
        sessions.session_errors.append(code)
        sessions.put(0, *batches(5), end=5)
        assert len(await take(consumer, 5)) == 5
    assert [each for each in sessions.asked if each[0] == 0] == [(0, [0, 1, 2], [])] * 2
    assert [record for record in caplog.records if "fetch" in record.getMessage()] == []


async def test_a_broker_that_refuses_full_fetches_is_not_asked_without_a_pause(sessions: SessionBroker) -> None:
    sessions.refuse_all = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    async with consumer_of(sessions, retry_backoff_ms=100, retry_backoff_max_ms=100):
        await asyncio.sleep(2)
    assert 10 <= len(sessions.asked) <= 30


async def test_a_lost_connection_begins_a_new_session(sessions: SessionBroker) -> None:
    async with consumer_of(sessions, reconnect_backoff_ms=5) as consumer:
        await polls(sessions)
        for writer in list(sessions.connections):
            writer.transport.abort()
        sessions.put(0, *batches(5), end=5)
        assert len(await take(consumer, 5)) == 5
    assert [each[0] for each in sessions.asked].count(0) == 2
    assert [request.session_id for request in sessions.seen(1) if request.session_epoch == 0] == [0, 7]


async def test_a_broker_without_sessions_gets_full_fetches(fetched_v6: FetchBroker) -> None:
    fetched_v6.put(0, *batches(5), end=5)
    async with consumer_of(fetched_v6) as consumer:
        assert len(await take(consumer, 5)) == 5
        await polls(fetched_v6)
    assert all(len(request.topics[0].partitions) == 3 for request in fetched_v6.seen(1))


@pytest.fixture
async def fetched_v6() -> AsyncIterator[FetchBroker]:
    async with FetchBroker(3) as broker:
        broker.versions[1] = (4, 6)
        yield broker


# --- against a real broker


def reader(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50, **settings)


async def test_records_arrive_in_a_session_that_the_broker_ends(broker: Harness) -> None:
    bootstrap = f"127.0.0.1:{broker.port}"
    await (await broker.wire()).create_topic("t", partitions=4)
    assert broker.node is not None
    found = broker.node.broker.fetch_sessions
    async with reader(bootstrap) as consumer:
        ids = []
        for round_ in range(3):
            await produce(bootstrap, [b"%d" % round_] * 5, partition=round_)
            assert {record.value for record in await take(consumer, 5)} == {b"%d" % round_}
            await until(lambda: len(found) == 1)
            (session,) = found._sessions.values()
            assert session.count == 4
            ids.append(session.session_id)
            found.remove(session.session_id, session.owner)
        assert len(dict.fromkeys(ids)) == 3
        assert [consumer.highwater(tp(index)) for index in range(4)] == [5, 5, 5, 0]


async def test_a_session_does_not_hide_records_after_a_restart_of_the_broker(broker: Harness) -> None:
    broker.settings["port"] = str(broker.port)
    bootstrap = f"127.0.0.1:{broker.port}"
    await (await broker.wire()).create_topic("t", partitions=4)
    async with reader(bootstrap) as consumer:
        for round_ in range(3):
            await produce(bootstrap, [b"%d" % round_] * 5, partition=round_)
            assert {record.value for record in await take(consumer, 5)} == {b"%d" % round_}
            await broker.restart()


async def test_without_room_for_sessions_records_arrive(broker: Harness) -> None:
    broker.settings["max.incremental.fetch.session.cache.slots"] = "0"
    await broker.restart()
    bootstrap = f"127.0.0.1:{broker.port}"
    await produce(bootstrap, [b"v"] * 5)
    async with reader(bootstrap) as consumer:
        assert len(await take(consumer, 5)) == 5
        await produce(bootstrap, [b"w"] * 5)
        assert len(await take(consumer, 5)) == 5
