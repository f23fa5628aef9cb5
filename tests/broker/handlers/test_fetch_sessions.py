"""Fetch sessions (KIP-227): the broker omits what the client already has, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from broker.authorization.test_rules import allow, change, guarded
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch
from semel_protocol.acls import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)

VERSION = 11
EVERY = {"t": {0: 0, 1: 0, 2: 0}}
Offsets = dict[str, dict[int, int]]


def asked(
    offsets: Offsets, session_id: int = 0, epoch: int = 0, forgotten: dict[str, list[int]] | None = None, **fields: int
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequestTopic(
                topic=name,
                partitions=[
                    FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for index, offset in rows.items()
                ],
            )
            for name, rows in offsets.items()
        ],
        forgotten_topics_data=[
            FetchRequestForgottenTopic(topic=name, partitions=indexes) for name, indexes in (forgotten or {}).items()
        ],
    )


async def fetch(wire: Wire, request: FetchRequest) -> Any:
    response = await wire.call(request, VERSION)
    assert isinstance(response, FetchResponse)
    return response


def rows(response: FetchResponse) -> dict[tuple[str, int], tuple[int, bool]]:
    """(error code, whether there are records) by partition."""
    return {
        (topic.topic, row.partition_index): (row.error_code, bool(row.records))
        for topic in response.responses
        for row in topic.partitions
    }


async def begun(wire: Wire, offsets: Offsets = EVERY) -> int:
    """A session with these partitions, all of them answered once."""
    response = await fetch(wire, asked(offsets))
    assert response.session_id > 0
    assert len(rows(response)) == sum(map(len, offsets.values()))
    return response.session_id


@pytest.fixture
async def ready(broker: Harness) -> Wire:
    """A connection to a broker with the topic "t" of three partitions."""
    wire = await broker.wire()
    await wire.create_topic("t", partitions=3)
    return wire


# --- what is sent


async def test_only_partitions_with_news_are_in_the_answer(ready: Wire) -> None:
    session = await begun(ready)
    assert rows(await fetch(ready, asked({}, session, 1))) == {}
    await ready.produce("t", batch(b"v"), partition=1)
    assert rows(await fetch(ready, asked({}, session, 2))) == {("t", 1): (0, True)}
    assert rows(await fetch(ready, asked({}, session, 3))) == {("t", 1): (0, True)}, "its offset has not moved"
    assert rows(await fetch(ready, asked({"t": {1: 1}}, session, 4))) == {}
    await ready.produce("t", batch(b"w"), partition=1)
    assert rows(await fetch(ready, asked({}, session, 5))) == {("t", 1): (0, True)}


async def test_a_fetch_of_a_session_waits_for_records_of_any_of_its_partitions(broker: Harness, ready: Wire) -> None:
    session = await begun(ready)
    ready.send(asked({}, session, 1, max_wait_ms=60_000), VERSION)
    other = await broker.wire()
    await other.produce("t", batch(b"v"), partition=2)
    assert rows(await ready.receive()) == {("t", 2): (0, True)}


async def test_partitions_come_and_go(ready: Wire) -> None:
    session = await begun(ready, {"t": {0: 0}})
    for index in range(3):
        await ready.produce("t", batch(b"v"), partition=index)
    assert rows(await fetch(ready, asked({"t": {2: 0}}, session, 1))) == {("t", 0): (0, True), ("t", 2): (0, True)}
    assert rows(await fetch(ready, asked({}, session, 2, {"t": [0]}))) == {("t", 2): (0, True)}


async def test_errors_are_in_every_answer(ready: Wire) -> None:
    session = await begun(ready, {"t": {0: 0}, "missing": {0: 0}})
    for epoch in (1, 2):
        answer = rows(await fetch(ready, asked({}, session, epoch)))
        assert answer == {("missing", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)}
    await ready.create_topic("missing")
    await ready.produce("missing", batch(b"v"))
    assert rows(await fetch(ready, asked({}, session, 3))) == {("missing", 0): (0, True)}


# --- sessions begin and end


async def test_a_session_without_partitions_ends(ready: Wire) -> None:
    session = await begun(ready, {"t": {0: 0}})
    answer = await fetch(ready, asked({}, session, 1, {"t": [0]}))
    assert (answer.session_id, rows(answer)) == (0, {})
    assert (await fetch(ready, asked({}, session, 2))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, -1])
async def test_a_full_fetch_ends_the_session_that_it_names(ready: Wire, epoch: int) -> None:
    session = await begun(ready)
    answer = await fetch(ready, asked(EVERY, session, epoch))
    assert (answer.session_id > 0) is (epoch == 0)
    assert len(rows(answer)) == 3
    assert (await fetch(ready, asked({}, session, 1))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("session_id", [-1, 0])
async def test_fetches_without_a_session_have_none(ready: Wire, session_id: int) -> None:
    """kafka-go sends (-1, -1)."""
    answer = await fetch(ready, asked(EVERY, session_id, -1))
    assert (answer.error_code, answer.session_id, len(rows(answer))) == (0, 0, 3)


@pytest.mark.parametrize(("session_id", "epoch"), [(0, 1), (7, 2), (-1, 5), (7, -2)])
async def test_unknown_sessions_are_refused(ready: Wire, session_id: int, epoch: int) -> None:
    answer = await fetch(ready, asked({}, session_id, epoch))
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_an_epoch_that_is_not_the_next_one_is_refused(ready: Wire) -> None:
    session = await begun(ready)
    assert (await fetch(ready, asked({}, session, 2))).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (await fetch(ready, asked({}, session, 1))).error_code == 0
    assert (await fetch(ready, asked({}, session, 1))).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_without_room_clients_fetch_without_sessions(start_broker: StartBroker) -> None:
    broker = await start_broker(max_incremental_fetch_session_cache_slots="1")
    wire = await broker.wire()
    await wire.create_topic("t", partitions=3)
    await begun(wire)
    answer = await fetch(wire, asked(EVERY))
    assert (answer.session_id, len(rows(answer))) == (0, 3)


async def test_a_session_is_continued_over_another_connection(broker: Harness, ready: Wire) -> None:
    session = await begun(ready)
    other = await broker.wire()
    assert (await fetch(other, asked({}, session, 1))).error_code == 0


# --- rights


async def test_every_fetch_of_a_session_is_authorised_for_all_of_its_partitions(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    session = (await fetch(wire, asked({"t": {0: 0}}))).session_id
    refused = {("t", 0): (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)}
    assert rows(await fetch(wire, asked({}, session, 1))) == refused
    await allow(harness, Operation.READ, ResourceType.TOPIC, "t")
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED not in {
        code for code, _ in rows(await fetch(wire, asked({}, session, 2))).values()
    }
    denial = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", WILDCARD, Operation.READ, Permission.DENY)
    await change(harness, denial)
    assert rows(await fetch(wire, asked({}, session, 3))) == refused
