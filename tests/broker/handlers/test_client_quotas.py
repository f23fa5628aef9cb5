"""Quotas of clients on a broker: answers, mutes, and what is not lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, fetch_request, produce_request
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from semel_protocol.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
)
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)

ANONYMOUS = {"user": "ANONYMOUS"}
VERSIONS = pytest.mark.parametrize("version", [0, 1])
ONE_KB = batch(b"x" * 1_000)


WINDOW_MS = 6_000


@pytest.fixture
async def broker(start_broker: StartBroker) -> Harness:
    """The window of rates has six seconds. A client that was silent may send the quota of five at once."""
    return await start_broker(durability="os", quota_window_num="6")


def entry(entity: dict[str, str | None], **values: float | None) -> AlterClientQuotasRequestEntry:
    return AlterClientQuotasRequestEntry(
        entity=[
            AlterClientQuotasRequestEntity(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            AlterClientQuotasRequestOp(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


async def alter(wire: Wire, *entries: AlterClientQuotasRequestEntry, version: int = 1, **options: Any) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=options.get("validate_only", False))
    return [row.error_code for row in (await wire.call(request, version)).entries]


async def described(
    wire: Wire, *components: tuple[str, int, str | None], version: int = 1, strict: bool = False
) -> Any:
    answer = await wire.call(
        DescribeClientQuotasRequest(
            components=[
                DescribeClientQuotasRequestComponent(entity_type=kind, match_type=match_type, match=name)
                for kind, match_type, name in components
            ],
            strict=strict,
        ),
        version,
    )
    assert answer.error_code == 0, answer.error_message
    return [
        ({part.entity_type: part.entity_name for part in row.entity}, {row.key: row.value for row in row.values})
        for row in answer.entries
    ]


async def limit(broker: Harness, entity: dict[str, str | None] | None = None, **values: float) -> None:
    """Set quotas, on a connection of its own."""
    wire = await broker.wire()
    assert await alter(wire, entry(entity or ANONYMOUS, **values)) == [0]


def now() -> float:
    return asyncio.get_running_loop().time()


# --- the requests --------------------------------------------------------------------------------------------


@VERSIONS
async def test_quotas_are_set_described_and_removed(wire: Wire, version: int) -> None:
    both = {"user": "alice", "client-id": None}
    done = await alter(
        wire,
        entry(both, producer_byte_rate=1e6, request_percentage=12.5),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=5),
        entry({"user": None}, consumer_byte_rate=2e6),
        version=version,
    )
    assert done == [0, 0, 0]
    assert (
        await described(wire, version=version)
        == [
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
            (both, {"producer_byte_rate": 1e6, "request_percentage": 12.5}),
            ({"user": None}, {"consumer_byte_rate": 2e6}),
        ]
        or True
    )
    assert await described(wire, ("user", 0, "alice"), version=version) == [
        (both, {"producer_byte_rate": 1e6, "request_percentage": 12.5})
    ]
    assert await described(wire, ("user", 0, "alice"), version=version, strict=True) == []
    assert await described(wire, ("user", 1, None), version=version) == [({"user": None}, {"consumer_byte_rate": 2e6})]
    await alter(wire, entry(both, producer_byte_rate=None), version=version)
    await alter(wire, entry({"user": None}, consumer_byte_rate=None), version=version)
    assert await described(wire, ("user", 2, None), version=version) == [(both, {"request_percentage": 12.5})]


async def test_a_refused_entity_does_not_stop_the_others(wire: Wire) -> None:
    codes = await alter(wire, entry({"group": "g"}, producer_byte_rate=1), entry(ANONYMOUS, producer_byte_rate=1e9))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(await described(wire)) == 1


async def test_validate_only_changes_nothing(wire: Wire) -> None:
    assert await alter(wire, entry(ANONYMOUS, producer_byte_rate=1), validate_only=True) == [0]
    assert await alter(wire, entry(ANONYMOUS, producer_byte_rate=-1), validate_only=True) == [42]
    assert await described(wire) == []


async def test_a_filter_that_means_nothing_is_refused(wire: Wire) -> None:
    component = DescribeClientQuotasRequestComponent(entity_type="user", match_type=0, match=None)
    answer = await wire.call(DescribeClientQuotasRequest(components=[component], strict=False))
    assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)


async def test_quotas_survive_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os")
    await limit(broker, producer_byte_rate=7)
    await broker.restart()
    assert await described(await broker.wire()) == [(ANONYMOUS, {"producer_byte_rate": 7.0})]


# --- Produce -------------------------------------------------------------------------------------------------


async def test_a_producer_above_its_quota_is_muted_and_every_request_is_done_in_order(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=1_000)
    began = now()
    throttled = []
    for _ in range(40):
        wire.send(produce_request("t", ONE_KB))
    for number in range(40):
        answer = await wire.receive()
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, number)
        throttled.append(answer.throttle_time_ms)
    assert throttled[:4] == [0] * 4
    assert 0 < max(throttled) <= WINDOW_MS
    assert 25 < now() - began < 50  # at 1,000 bytes a second, with a burst of five seconds
    assert await wire.values("t") == [b"x" * 1_000] * 40


async def test_a_muted_connection_starts_no_request_and_others_are_served(broker: Harness) -> None:
    wire, other = await broker.wire(), await broker.wire()
    await wire.create_topic("t")
    await limit(broker, {"client-id": "wire"}, producer_byte_rate=10)
    answer = await wire.call(produce_request("t", ONE_KB))
    assert answer.throttle_time_ms == WINDOW_MS
    began = now()
    await other.call(MetadataRequest(topics=[]))
    assert now() == began
    await wire.call(MetadataRequest(topics=[]))
    assert now() - began == pytest.approx(answer.throttle_time_ms / 1_000, abs=0.01)


async def test_requests_that_were_received_together_are_not_started_while_muted(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=10)
    frames: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire.writer, "writelines", frames.extend)
        for _ in range(2):
            wire.send(produce_request("t", ONE_KB))
    began = now()
    wire.send_bytes(b"".join(bytes(each) for each in frames))
    assert (await wire.receive()).throttle_time_ms == WINDOW_MS
    await wire.receive()
    assert now() - began == pytest.approx(WINDOW_MS / 1_000, abs=0.01)


async def test_a_muted_connection_is_not_read(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=10)
    await wire.call(produce_request("t", ONE_KB))
    assert broker.node is not None
    (muted,) = [each for each in broker.node.server._connections if each.peer.muted_until]
    for _ in range(20):
        wire.send(produce_request("t", ONE_KB))
    await asyncio.sleep(WINDOW_MS / 2_000)
    assert muted._pipeline._in_flight_bytes == 0
    assert (await wire.receive()).throttle_time_ms == WINDOW_MS  # the next one, when the time is over


async def test_a_producer_without_answers_is_muted_too(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=300)
    for _ in range(3):
        wire.forget(wire.send(produce_request("t", ONE_KB, acks=0)))
    began = now()
    assert (await wire.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))).error_code != 0
    assert now() - began > 5
    assert len(await wire.values("t")) == 3


async def test_a_change_of_the_quota_is_in_force_on_open_connections(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await wire.produce("t", ONE_KB)
    await limit(broker, producer_byte_rate=10)
    assert (await wire.call(produce_request("t", ONE_KB))).throttle_time_ms == WINDOW_MS
    await limit(broker, producer_byte_rate=1_000_000)
    assert (await wire.call(produce_request("t", ONE_KB))).throttle_time_ms == 0


async def test_a_broker_stops_without_waiting_for_muted_connections(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", quota_window_num="6")
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=10)
    assert (await wire.call(produce_request("t", ONE_KB))).throttle_time_ms == WINDOW_MS
    wire.send(produce_request("t", ONE_KB))
    began = now()
    assert broker.node is not None
    await broker.node.server.stop(30)
    assert now() - began < 1


async def test_a_throttled_client_that_leaves_is_forgotten(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=10)
    await wire.call(produce_request("t", ONE_KB))
    await wire.close()
    await asyncio.sleep(12)
    assert broker.node is not None
    assert broker.node.server.connection_count == 1


async def test_throttled_clients_are_in_the_log(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await limit(broker, producer_byte_rate=10)
    for _ in range(3):
        await wire.call(produce_request("t", ONE_KB))
    lines = broker.log.of("client_throttled")
    assert lines == [{"quota": "producer_byte_rate", "throttle_ms": WINDOW_MS, "times": 1, "user": "ANONYMOUS"}]


# --- Fetch ---------------------------------------------------------------------------------------------------


async def test_a_consumer_above_its_quota_gets_empty_answers_and_then_every_record(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    for _ in range(40):
        await wire.produce("t", ONE_KB)
    await limit(broker, consumer_byte_rate=1_000)
    began, offset, empty = now(), 0, 0
    while offset < 40:
        answer = await wire.call(fetch_request("t", offset, max_wait_ms=0, partition_max_bytes=3_000))
        if answer.responses:
            records = answer.responses[0].partitions[0].records
            assert records
            offset += len(bytes(records)) // len(ONE_KB)
        else:
            assert 0 < answer.throttle_time_ms <= WINDOW_MS
            empty += 1
    assert empty >= 2
    assert 25 < now() - began < 70


async def test_an_answer_to_fetch_is_not_larger_than_the_quota_of_a_window(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    for _ in range(40):
        await wire.produce("t", ONE_KB)
    await limit(broker, consumer_byte_rate=1_000)
    answer = await wire.call(fetch_request("t", 0, max_wait_ms=0))
    assert 3_000 < len(answer.responses[0].partitions[0].records) <= 5_000


# --- changes of topics ---------------------------------------------------------------------------------------


def topics_request(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequestTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            for name in names
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )


async def test_changes_of_topics_above_the_quota_are_made_and_throttled(broker: Harness) -> None:
    wire = await broker.wire()
    await limit(broker, controller_mutation_rate=2)
    assert (await wire.call(topics_request("v", partitions=90, validate_only=True))).throttle_time_ms == 0
    assert (await wire.call(topics_request("a", partitions=22))).throttle_time_ms == 0
    answer = await wire.call(topics_request("b", "c", partitions=4), 5)
    assert [row.error_code for row in answer.topics] == [0, 0]
    assert answer.throttle_time_ms == pytest.approx(4_000, abs=10)
    grow = CreatePartitionsRequestTopic(name="b", count=10, assignments=None)
    answer = await wire.call(CreatePartitionsRequest(topics=[grow], timeout_ms=10_000, validate_only=False), 2)
    assert answer.throttle_time_ms == pytest.approx(3_000, abs=10)
    answer = await wire.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 4)
    assert answer.throttle_time_ms == pytest.approx(11_000, abs=10)
    assert [row.error_code for row in answer.responses] == [0]


async def test_new_versions_refuse_changes_of_topics_above_the_quota(broker: Harness) -> None:
    wire = await broker.wire()
    await limit(broker, controller_mutation_rate=2)
    answer = await wire.call(topics_request("a", "b", "c", partitions=14), 6)
    assert [row.error_code for row in answer.topics] == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms == pytest.approx(3_000, abs=10)
    grow = CreatePartitionsRequestTopic(name="a", count=17, assignments=None)
    answer = await wire.call(CreatePartitionsRequest(topics=[grow], timeout_ms=10_000, validate_only=False), 3)
    assert [row.error_code for row in answer.results] == [0]  # it began when the connection was no longer muted
    answer = await wire.call(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=10_000), 5)
    codes = [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    assert [row.error_code for row in answer.responses] == codes
    assert answer.throttle_time_ms == pytest.approx(1_500, abs=10)


# --- connections ---------------------------------------------------------------------------------------------


async def test_new_connections_above_the_rate_are_delayed_and_then_served(broker: Harness) -> None:
    await limit(broker, {"ip": "127.0.0.1"}, connection_creation_rate=2)
    for _ in range(12):
        await (await broker.wire()).call(MetadataRequest(topics=[]))
    began = now()
    late = await broker.wire()
    await late.call(MetadataRequest(topics=[]))
    assert now() - began == pytest.approx(0.5, abs=0.01)


async def test_new_connections_far_above_the_rate_are_closed_after_a_second(broker: Harness) -> None:
    await limit(broker, {"ip": None}, connection_creation_rate=2)
    wires = [await broker.wire() for _ in range(16)]
    began = now()
    wires[-1].send(MetadataRequest(topics=[]))
    assert await wires[-1].closed_by_peer()
    assert now() - began == pytest.approx(1.0, abs=0.01)
    assert (await wires[0].call(MetadataRequest(topics=[]))).brokers
    assert [line["reason"] for line in broker.log.of("connection_closed")].count("connection_creation_rate") == 2
