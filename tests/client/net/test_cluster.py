"""The client's view of the cluster, and how it stays current."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client.fake_broker import FakeBroker
from semel._config.client import ClientConfig
from semel._net.cluster import Cluster
from semel._net.metadata import merged
from semel._net.pool import ConnectionPurpose
from semel.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from semel.structs import Metadata
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorResponse


def cluster_of(broker: FakeBroker, **settings: Any) -> Cluster:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 4, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 4}
    return Cluster(ClientConfig(bootstrap_servers=f"127.0.0.1:1, {broker.address}", **{**quick, **settings}))


async def test_any_bootstrap_server_that_answers_is_enough(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    assert list(cluster.metadata.brokers) == [0]
    assert cluster.metadata.cluster_id == "fake"
    assert len(fake_broker.connections) == 1, "the bootstrap connection is the broker's now"
    await cluster.any_connection()
    assert len(fake_broker.connections) == 1
    await cluster.stop()


@pytest.mark.parametrize("attempted", [-1, 0])
async def test_an_attempt_to_connect_ends_with_the_pool_though_the_bootstrap_connection_is_adopted_meanwhile(
    fake_broker: FakeBroker, attempted: int
) -> None:
    pool = cluster_of(fake_broker).pool
    host, _, port = fake_broker.address.partition(":")
    for node_id in (-1, 0):
        pool.set_address(node_id, host, int(port))
    if attempted == 0:
        await pool.connection(-1, ConnectionPurpose.CONTROL)
    attempt = pool.connecting(attempted, ConnectionPurpose.CONTROL)
    pool.adopt(-1, 0)
    assert pool.cut() == [attempt]
    await asyncio.wait((attempt,))
    assert attempt.cancelled()


async def test_an_attempt_to_connect_continues_without_its_caller_and_its_failure_is_no_error_of_the_loop(
    fake_broker: FakeBroker,
) -> None:
    """`asyncio.shield` of Python 3.14 reports such a failure to the loop."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    pool = cluster_of(fake_broker).pool
    pool.set_address(-1, "127.0.0.1", 1)
    with pytest.raises(KafkaConnectionError):
        await pool.connection(-1, ConnectionPurpose.CONTROL)  # so the next attempt pauses first
    caller = asyncio.create_task(pool.connection(-1, ConnectionPurpose.CONTROL))
    await asyncio.sleep(0)
    attempt = pool.connecting(-1, ConnectionPurpose.CONTROL)
    caller.cancel()
    await asyncio.wait((caller, attempt))
    await asyncio.sleep(0)
    assert caller.cancelled()
    assert isinstance(attempt.exception(), KafkaConnectionError)
    assert not reported
    assert not pool.cut()


async def test_a_topic_is_waited_for(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    waiting = asyncio.create_task(cluster.wait_for_topic("new"))
    await asyncio.sleep(0.01)
    fake_broker.topics["new"] = 3
    assert len((await waiting).partitions) == 3
    with pytest.raises(KafkaTimeoutError, match=r"'other' did not appear within 200 ms.*UNKNOWN_TOPIC_OR_PARTITION"):
        await cluster.wait_for_topic("other", 200)
    await cluster.stop()


async def test_the_reason_for_a_missing_topic_is_kept_when_the_last_request_is_not_answered(
    fake_broker: FakeBroker,
) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    never = asyncio.Event()
    asked = 0

    async def once(request: Any) -> MetadataResponse:
        nonlocal asked
        asked += 1
        if asked > 1:
            await never.wait()
        return await fake_broker.metadata(request)

    fake_broker.answers[3] = once
    with pytest.raises(KafkaTimeoutError, match=r"'other' did not appear within 200 ms.*UNKNOWN_TOPIC_OR_PARTITION"):
        await cluster.wait_for_topic("other", 200)
    assert asked == 2
    await cluster.stop()


async def test_an_illegal_topic_fails_at_once(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()

    async def refuse(request: Any) -> MetadataResponse:
        answer = await fake_broker.metadata(request)
        answer.topics = [MetadataResponseTopic(name="a/b", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)]
        return answer

    fake_broker.answers[3] = refuse
    with pytest.raises(InvalidTopicError, match="a/b"):
        await cluster.wait_for_topic("a/b")
    await cluster.stop()


async def test_refresh_returns_metadata_requested_after_the_call(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    await cluster.wait_for_topic("t")
    gate = asyncio.Event()

    async def slow(request: Any) -> MetadataResponse:
        answer = await fake_broker.metadata(request)
        await gate.wait()
        return answer

    fake_broker.answers[3] = slow
    early = asyncio.create_task(cluster.refresh())
    await asyncio.sleep(0.02)  # its request is at the broker, its answer is made
    fake_broker.topics["t"] = 5
    late = asyncio.create_task(cluster.refresh())
    await asyncio.sleep(0)
    gate.set()
    assert len((await early).topics["t"].partitions) == 1
    assert len((await late).topics["t"].partitions) == 5
    await cluster.stop()


async def test_metadata_is_refreshed_on_age(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker, metadata_max_age_ms=10)
    await cluster.start()
    before = len(fake_broker.seen(3))
    await asyncio.sleep(0.1)
    assert len(fake_broker.seen(3)) >= before + 3
    await cluster.stop()


def picture(leader: int, epoch: int, topic_id: bytes = bytes(16)) -> MetadataResponse:
    row = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[row])])


def test_metadata_with_an_older_leader_epoch_does_not_replace_the_leader() -> None:
    known = merged(Metadata(brokers={}, topics={}), picture(leader=1, epoch=5))
    assert merged(known, picture(leader=2, epoch=4)).leader("t", 0) == 1
    assert merged(known, picture(leader=2, epoch=6)).leader("t", 0) == 2
    assert merged(known, picture(leader=2, epoch=-1)).leader("t", 0) == 2
    assert merged(known, picture(leader=2, epoch=0, topic_id=b"n" * 16)).leader("t", 0) == 2, "created again"


async def test_the_coordinator_is_remembered_until_forgotten(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    async def answer(_: Any) -> FindCoordinatorResponse:
        if codes:
            return FindCoordinatorResponse(error_code=codes.pop(), node_id=-1, port=-1)
        return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=fake_broker.port)

    fake_broker.answers[10] = answer
    assert await cluster.coordinator("g") == 0
    assert await cluster.coordinator("g") == 0
    assert len(fake_broker.seen(10)) == 3
    connection = await cluster.coordinator_connection("g")
    assert connection is cluster.pool.live(0, ConnectionPurpose.COORDINATOR)
    assert connection is not cluster.pool.live(0, ConnectionPurpose.CONTROL)
    cluster.forget_coordinator("g")
    await cluster.coordinator("g")
    assert len(fake_broker.seen(10)) == 4
    await cluster.stop()


async def test_idle_connections_are_closed_and_opened_again(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker, connections_max_idle_ms=40)
    await cluster.start()
    await cluster.connection(0, ConnectionPurpose.DATA)
    await asyncio.sleep(0.15)
    assert cluster.pool.live(0, ConnectionPurpose.DATA) is None
    assert not (await cluster.connection(0, ConnectionPurpose.DATA)).closed
    await cluster.stop()


async def test_a_lost_connection_is_opened_again(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    first = await cluster.connection(0, ConnectionPurpose.DATA)
    await fake_broker.close()
    await asyncio.sleep(0.01)
    with pytest.raises(KafkaConnectionError):
        await cluster.connection(0, ConnectionPurpose.DATA)
    await fake_broker.listen()
    assert await cluster.connection(0, ConnectionPurpose.DATA) is not first
    await cluster.stop()


async def test_stop_fails_calls_that_wait(fake_broker: FakeBroker) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()

    async def never(_: Any) -> Any:
        await asyncio.Event().wait()

    fake_broker.answers[3] = never
    waiting = asyncio.create_task(cluster.refresh())
    await asyncio.sleep(0.01)
    await cluster.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        await waiting
    with pytest.raises(IllegalStateError):
        await cluster.connection(0, ConnectionPurpose.DATA)


async def test_a_bootstrap_server_that_is_none_fails_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(KafkaProtocolError, match="HTTP or TLS"):
        await Cluster(ClientConfig(bootstrap_servers=f"127.0.0.1:{port}")).start()
    server.close()
    await server.wait_closed()


# One thing that fails never keeps others from being learnt


async def test_the_refresh_continues_after_a_listener_that_fails(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    seen: list[str] = []
    failures = [RuntimeError("a bug"), RuntimeError("a bug")]

    def fails() -> None:
        if failures:
            raise failures.pop()

    cluster.on_change(fails)
    cluster.on_change(lambda: seen.extend(cluster.metadata.topics))
    await cluster.refresh()
    fake_broker.topics["new"] = 1
    assert (await cluster.wait_for_topic("new")).name == "new"
    assert seen[-1] == "new"
    assert "a bug" in caplog.text
    await cluster.stop()


@pytest.mark.parametrize("name", [b"t", 7, "\ud800", "", "..", "a/b", "x" * 40_000])
async def test_a_name_that_cannot_be_sent_keeps_no_other_topic_unknown(fake_broker: FakeBroker, name: Any) -> None:
    cluster = cluster_of(fake_broker)
    await cluster.start()
    cluster.want([name])
    assert (await cluster.wait_for_topic("t")).name == "t"
    assert cluster.metadata.errors == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    await cluster.stop()


async def test_a_refused_topic_is_asked_for_again_by_the_next_call(fake_broker: FakeBroker) -> None:
    refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    answer = fake_broker.metadata

    async def metadata(request: Any) -> MetadataResponse:
        found = await answer(request)
        for row in found.topics:
            if row.name == "t" and refused:
                row.error_code, row.partitions = refused.pop(), []
        return found

    fake_broker.answers[3] = metadata
    cluster = cluster_of(fake_broker)
    await cluster.start()
    with pytest.raises(TopicAuthorizationFailedError):
        await cluster.wait_for_topic("t")
    assert (await cluster.wait_for_topic("t")).partitions
    await cluster.stop()
