"""An address that cannot be reached is named with its error: in each timeout, and in one warning."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from client.fake_broker import QUICK, FakeBroker
from semel import Admin, BatchReader, Consumer, Producer, TopicPartition, TransactionGroup
from semel._edge import Edge
from semel._net.reachability import Reachability
from semel._net.socket_errors import failure_of
from semel.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorResponse

CLOSED = "127.0.0.1:1"
REASON = (
    r"broker 0 at 127\.0\.0\.1:1: connection refused \(ECONNREFUSED\) \(\d\.\d s ago\)|cannot connect to 127\.0\.0\.1:1"
)
LOGGER = "semel._net.reachability"


class UnreachableAddress(msgspec.Struct):
    """The address that a broker advertises and does not listen on."""

    node_id: int = 0
    port: int = 1


@pytest.fixture
async def hidden_broker(fake_broker: FakeBroker) -> AsyncIterator[FakeBroker]:
    """A broker that answers at its own address, but advertises one that refuses connections."""
    fake_broker.peers = [UnreachableAddress()]  # type: ignore[list-item]

    async def coordinator(_: object) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=1)

    fake_broker.answers[10] = coordinator
    return fake_broker


PATIENT = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
"""For tests in which a minute of virtual time passes: each attempt takes a millisecond of real time."""


def settings(broker: FakeBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.address, **QUICK, **more}


async def produced(broker: FakeBroker) -> None:
    given = settings(broker, delivery_timeout_ms=1_000, request_timeout_ms=900, linger_ms=0)
    async with Producer(**given) as producer:
        await producer.send_and_wait("t", b"x", partition=0)


async def filled(broker: FakeBroker) -> None:
    given = settings(broker, max_block_ms=500, buffer_memory=70_000, max_request_size=65_000, **PATIENT)
    async with Producer(**given) as producer:
        for _ in range(3):
            sent = await producer.send("t", bytes(60_000), partition=0)
            sent.add_done_callback(lambda future: future.exception())


async def initialised(broker: FakeBroker) -> None:
    await Producer(**settings(broker, max_block_ms=500, transactional_id="a")).start()


async def listed_groups(broker: FakeBroker) -> None:
    async with Admin(**settings(broker, max_block_ms=500)) as admin:
        await admin.list_consumer_groups()


async def deleted_group(broker: FakeBroker) -> None:
    async with Admin(**settings(broker, max_block_ms=500)) as admin:
        await admin.delete_consumer_groups(["g"])


async def read_committed_offset(broker: FakeBroker) -> None:
    consumer = Consumer(**settings(broker, group_id="g", default_api_timeout_ms=500))
    consumer.assign([TopicPartition("t", 0)])
    async with consumer:
        await consumer.committed(TopicPartition("t", 0))


async def asked_position(broker: FakeBroker) -> None:
    consumer = Consumer(**settings(broker, default_api_timeout_ms=500))
    consumer.assign([TopicPartition("t", 0)])
    async with consumer:
        await consumer.position(TopicPartition("t", 0))


async def asked_end(broker: FakeBroker) -> None:
    async with Consumer(**settings(broker, default_api_timeout_ms=500)) as consumer:
        await consumer.end_offsets([TopicPartition("t", 0)])


async def read_batches(broker: FakeBroker) -> None:
    async with BatchReader(**settings(broker, default_api_timeout_ms=500)) as reader:
        async for _ in reader.read(TopicPartition("t", 0), 0, 1):
            pass


async def began_step(broker: FakeBroker) -> None:
    async with TransactionGroup("g", **settings(broker, max_block_ms=500)) as group:
        await group.begin()


CALLS = [
    produced, filled, initialised, listed_groups, deleted_group, read_committed_offset, asked_position, asked_end,
    read_batches, began_step,
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_a_timeout_names_the_address_that_refused_and_one_warning_says_that_it_is_advertised(
    hidden_broker: FakeBroker, call: Callable[[FakeBroker], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KafkaTimeoutError, match=REASON):
        await call(hidden_broker)
    warnings = [row.getMessage() for row in caplog.records if row.name == LOGGER]
    assert len(warnings) == 1, warnings
    assert (
        f"{hidden_broker.address} answered, but the address that broker 0 advertises, {CLOSED}, does not" in warnings[0]
    )
    assert "ECONNREFUSED" in warnings[0]
    assert "advertised.listeners" in warnings[0]


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_a_consumer_that_waits_for_records_warns_once(
    hidden_broker: FakeBroker, group_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer("t", **settings(hidden_broker, group_id=group_id, **PATIENT))
    waiting = asyncio.create_task(consumer.start() if group_id else _first_record(consumer))
    await asyncio.sleep(60)  # virtual: so long passes while the consumer waits
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await consumer.stop()
    assert [row.getMessage() for row in caplog.records if row.name == LOGGER and CLOSED in row.getMessage()]
    assert len([row for row in caplog.records if row.name == LOGGER]) == 1


async def _first_record(consumer: Consumer[bytes | None, bytes | None]) -> None:
    await consumer.start()
    await consumer.getone()


async def test_an_address_that_works_again_is_warned_about_when_it_fails_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Edge()
    now = 0.0
    clock.monotonic = lambda: now  # type: ignore[method-assign]
    reachability = Reachability(clock, "c")
    refused = KafkaConnectionError("cannot connect to b:2: connection refused (ECONNREFUSED)")
    reachability.reached("a:1")

    def fail() -> int:
        caplog.clear()
        reachability.attempting(0, "b:2", is_needed=True)
        reachability.failed(0, "b:2", refused)
        return len([row for row in caplog.records if row.levelno >= logging.WARNING])

    assert [fail(), fail()] == [1, 0]
    reachability.reached("b:2")
    assert fail() == 0, "it was reached: its broker may be restarting"
    now = 6.0
    assert fail() == 0, "no broker answers: the metadata task warns"
    reachability.metadata_answered(["b:2"])
    assert fail() == 1
    assert "broker 0 at b:2 has not been reached for 6 s" in caplog.text
    assert fail() == 0
    reachability.metadata_answered([])
    assert reachability.current() == [], "the broker has left the cluster"
    assert reachability.explained("text", 9_000) == "text"


async def test_only_errors_of_the_time_waited_are_reported_and_each_once() -> None:
    clock = Edge()
    now = 0.0
    clock.monotonic = lambda: now  # type: ignore[method-assign]
    reachability = Reachability(clock, "c")
    reachability.attempting(-1, "b:2", is_needed=False)
    now = 2.0
    assert reachability.explained("late", 1_000) == "late; not reached: bootstrap server b:2: connecting for 2.0 s"
    reachability.failed(-1, "b:2", KafkaConnectionError("cannot connect to b:2: no route"))
    now = 4.0
    assert reachability.explained("late", 1_000) == "late"
    assert reachability.explained("late", 3_000).endswith("bootstrap server b:2: no route (2.0 s ago)")
    assert reachability.explained("late: cannot connect to b:2: no route", 3_000).endswith(
        "late: cannot connect to b:2: no route"
    )


async def _refusal_of_a_silent_port(timeout_ms: int, **more: Any) -> str:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(KafkaConnectionError) as caught:
        await Admin(bootstrap_servers=address, bootstrap_timeout_ms=timeout_ms, **more).start()
    server.close()
    assert f"bootstrap server {address}: " in str(caught.value)
    return str(caught.value)


async def test_a_port_that_accepts_and_never_answers_differs_from_one_that_refuses() -> None:
    assert "connected, waiting for the answer to ApiVersions for 2.0 s" in await _refusal_of_a_silent_port(2_000)


@pytest.mark.real_time
async def test_a_port_that_does_not_answer_the_tls_handshake_differs_from_one_that_refuses() -> None:
    given = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
    assert "or for the TLS handshake" in await _refusal_of_a_silent_port(300, **given)


async def test_a_hanging_advertised_address_is_warned_about_after_three_seconds(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    fake_broker.peers = [UnreachableAddress(port=server.sockets[0].getsockname()[1])]  # type: ignore[list-item]
    async with Admin(**settings(fake_broker)) as admin:
        asking = asyncio.create_task(admin.list_consumer_groups())
        await asyncio.sleep(2.9)  # virtual
        assert not caplog.records
        await asyncio.sleep(0.2)  # virtual
        assert "waiting for the answer to ApiVersions" in caplog.text
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    server.close()


async def test_a_broker_that_refuses_each_record_gives_the_reason_at_the_timeout(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([19] * 1_000)
    with pytest.raises(KafkaTimeoutError, match=r"not stored\): \[19 NOT_ENOUGH_REPLICAS\]|NOT_ENOUGH_REPLICAS"):
        await produced(fake_broker)


async def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(KafkaError, match=r"the name 'no-such-host\.invalid' cannot be resolved"):
        await Admin(bootstrap_servers="no-such-host.invalid:9092", bootstrap_timeout_ms=500).start()


async def test_a_text_that_cannot_be_the_name_of_a_host_is_named(
    hidden_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker advertises such a name. Python's resolver raises UnicodeError for it, which is no OSError."""
    connects = Edge.create_connection

    async def create_connection(edge: Edge, protocol: Any, host: str, port: int, *more: Any) -> Any:
        if port == 1:
            "a..b".encode("idna")
        return await connects(edge, protocol, host, port, *more)

    monkeypatch.setattr(Edge, "create_connection", create_connection)
    reason = r"'127\.0\.0\.1' is not the name of a host \(.*idna.*label empty or too long"
    with pytest.raises(KafkaTimeoutError, match=rf"broker 0 at 127\.0\.0\.1:1: {reason}"):
        await produced(hidden_broker)
    with pytest.raises(KafkaConnectionError, match=rf"cannot connect to {CLOSED}: {reason}"):
        await Admin(bootstrap_servers=CLOSED, bootstrap_timeout_ms=500).start()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused (ECONNREFUSED)"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
                "[Errno 113] Connect call failed ('127.0.0.1', 1)"
            ),
            "connection refused (ECONNREFUSED) at ::1, no route to the host (EHOSTUNREACH)",
        ),
        (OSError(101, "Network is unreachable"), "the network is unreachable (ENETUNREACH)"),
        (ConnectionResetError(), "connection reset by the peer (ECONNRESET)"),
        (OSError("closed"), "closed"),
    ],
)
def test_errno_has_words(error: OSError, said: str) -> None:
    assert failure_of(error, "127.0.0.1") == said
