"""One connection: versions, order, timeouts, and the error of waiting requests when it ends."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest
from client.fake_broker import FakeBroker
from semel._edge import Edge
from semel._net.connection import Connection, connect
from semel.errors import (
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from semel_protocol.messages.k00_produce import ProduceRequest
from semel_protocol.messages.k01_fetch import FetchRequest
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest


async def open_to(port: int, timeout_ms: float = 1000) -> Connection:
    return await connect(Edge(), "127.0.0.1", port, client_id="test", timeout_ms=timeout_ms)


@pytest.mark.parametrize("highest", [0, 2, 3, 4])
async def test_versions_are_agreed_with_brokers_of_any_age(highest: int) -> None:
    async with FakeBroker(versions={18: (0, highest), 3: (0, 4), 0: (0, 99)}) as broker:
        connection = await open_to(broker.port)
        assert connection.version(MetadataRequest) == 4
        assert connection.version(ProduceRequest) == 11, "12 is transaction version 2"
        assert not connection.serves(CreateTopicsRequest)
        with pytest.raises(UnsupportedVersionError, match=r"CreateTopics.*none"):
            connection.version(CreateTopicsRequest)
        connection.close()


async def test_versions_for_brokers_or_with_topic_ids_are_used_on_request_only() -> None:
    offered = dict.fromkeys((18, 1, 20, 24), (0, 99))
    async with FakeBroker(versions=offered) as broker:
        connection = await open_to(broker.port)
        assert connection.version(FetchRequest) == 12
        assert connection.version(DeleteTopicsRequest) == 5
        assert connection.version(AddPartitionsToTxnRequest) == 3
        assert connection.version(FetchRequest, version_max=15) == 15
        connection.close()


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        (5, TypeError, r"Metadata cannot carry topics\[0\]\.name=5 \(int\)"),
        ("\ud800", ValueError, r"Metadata cannot carry topics\[0\]\.name='\\ud800'"),
    ],
)
async def test_a_value_that_no_version_carries_is_no_question_of_versions(
    fake_broker: FakeBroker, name: Any, error: type[Exception], says: str
) -> None:
    connection = await open_to(fake_broker.port)
    beside = connection.send(fake_broker_topic(0), timeout_ms=1000)
    with pytest.raises(error, match=says) as raised:
        connection.send(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), timeout_ms=1000)
    assert isinstance(raised.value, KafkaError)
    assert not isinstance(raised.value, UnsupportedVersionError)
    assert "pgrade" not in str(raised.value)
    await beside
    connection.close()


async def test_a_null_that_an_old_broker_cannot_take_is_a_question_of_versions() -> None:
    async with FakeBroker(versions={18: (0, 3), 3: (0, 0)}) as broker:
        connection = await open_to(broker.port)
        with pytest.raises(UnsupportedVersionError, match=r"Metadata v0.*cannot carry this: topics=None"):
            connection.send(MetadataRequest(topics=None), timeout_ms=1000)
        connection.close()


async def test_pipelined_requests_are_answered_in_order(fake_broker: FakeBroker) -> None:
    fake_broker.topics = {f"t{n}": 1 for n in range(50)}
    connection = await open_to(fake_broker.port)
    name = fake_broker_topic
    answers = [connection.send(name(n), timeout_ms=1000) for n in range(50)]
    assert connection.in_flight == 50
    assert [(await answer).topics[0].name for answer in answers] == [f"t{n}" for n in range(50)]
    connection.close()


def fake_broker_topic(number: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}")])


async def test_a_request_without_answer_closes_the_connection(fake_broker: FakeBroker) -> None:
    connection = await open_to(fake_broker.port)
    held = asyncio.Event()

    async def hold(_: Any) -> Any:
        await held.wait()

    fake_broker.answers[3] = hold
    lost: list[bool] = []
    connection.on_lost = lambda: lost.append(True)
    first = connection.send(MetadataRequest(topics=[]), timeout_ms=30)
    behind = connection.send(MetadataRequest(topics=[]), timeout_ms=10_000)
    with pytest.raises(KafkaTimeoutError, match="did not answer Metadata within 30 ms"):
        await first
    with pytest.raises(KafkaConnectionError):
        await behind
    assert connection.closed
    assert lost == [True]
    with pytest.raises(KafkaConnectionError):
        connection.send(MetadataRequest(topics=[]), timeout_ms=30)


async def test_a_cancelled_request_does_not_shift_the_answers(fake_broker: FakeBroker) -> None:
    fake_broker.topics = {"t0": 1, "t1": 1}
    connection = await open_to(fake_broker.port)
    first = connection.send(fake_broker_topic(0), timeout_ms=1000)
    first.cancel()
    second = await connection.request(fake_broker_topic(1), timeout_ms=1000)
    assert second.topics[0].name == "t1"
    connection.close()


async def raw_server(answer: bytes) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        await reader.read()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", KafkaProtocolError),
        (b"\xff\xff\xff\xff", KafkaProtocolError),
        (b"\x00\x00\x00\x02\x00\x00", KafkaProtocolError),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00", CorrelationIdError),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff", KafkaProtocolError),
    ],
)
async def test_a_peer_that_does_not_speak_kafka_is_recognised(answer: bytes, error: type[Exception]) -> None:
    server = await raw_server(answer)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(error, match=f"127.0.0.1:{port}"):
        await open_to(port)
    server.close()
    await server.wait_closed()


async def test_a_peer_that_never_answers_times_out() -> None:
    server = await raw_server(b"")
    with pytest.raises((KafkaConnectionError, KafkaTimeoutError), match="within"):
        await open_to(server.sockets[0].getsockname()[1], timeout_ms=30)
    server.close()
    await server.wait_closed()


async def test_a_port_without_listener_is_a_connection_error() -> None:
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:1"):
        await open_to(1)


async def test_drained_waits_for_a_peer_that_does_not_read() -> None:
    stop = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)
        writer.write(bytes.fromhex("0000001a 00000001 0000 03 00000000000700 00120000000400 00000000 00"))
        await stop.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await open_to(server.sockets[0].getsockname()[1])
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[], transactional_id="x" * 30_000)
    for _ in range(10_000):
        if not connection.writable:
            break
        connection.send_unanswered(request)
    assert not connection.writable
    waiting = asyncio.create_task(connection.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    connection.close()
    with pytest.raises(KafkaConnectionError):
        await waiting
    stop.set()
    server.close()
    await server.wait_closed()


async def test_a_throttled_client_sends_nothing_until_the_time_is_over(fake_broker: FakeBroker) -> None:
    loop = asyncio.get_running_loop()
    connection = await open_to(fake_broker.port)
    answer = MetadataResponse(brokers=[], topics=[], throttle_time_ms=3_000)
    fake_broker.answers[3] = AsyncMock(return_value=answer)
    await connection.request(MetadataRequest(topics=[]), timeout_ms=1000)
    assert not connection.writable
    began, seen = loop.time(), len(fake_broker.seen(3))
    waiting = asyncio.ensure_future(connection.request(MetadataRequest(topics=[]), timeout_ms=1000))
    await asyncio.sleep(2.9)
    assert len(fake_broker.seen(3)) == seen
    answer.throttle_time_ms = 0
    await waiting
    assert loop.time() - began == pytest.approx(3.0, abs=0.05)
    assert connection.writable
    assert (connection.throttles, connection.throttled_ms) == (1, 3_000)
    connection.close()


async def test_closing_ends_the_wait_of_a_throttled_request(fake_broker: FakeBroker) -> None:
    connection = await open_to(fake_broker.port)
    answer = MetadataResponse(brokers=[], topics=[], throttle_time_ms=60_000)
    fake_broker.answers[3] = AsyncMock(return_value=answer)
    await connection.request(MetadataRequest(topics=[]), timeout_ms=1000)
    waiting = asyncio.ensure_future(connection.request(MetadataRequest(topics=[]), timeout_ms=1000))
    await asyncio.sleep(1)
    connection.close()
    with pytest.raises(KafkaConnectionError):
        await waiting
