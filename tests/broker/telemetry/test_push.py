"""GetTelemetrySubscriptions and PushTelemetry: subscriptions, times, refusals, bounds, and the page of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from broker.authorization.test_rules import allow, guarded
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from broker.metrics.scraping import Scraper
from semel_broker.config.limits import Limits
from semel_broker.handlers import NEEDS
from semel_broker.pushed_points import Point, UnreadableMetricsError
from semel_broker.telemetry.instances import Instance
from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.compression import CODECS, compress
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from semel_protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from semel_protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from semel_protocol.messages.k72_push_telemetry import PushTelemetryRequest

CLIENT_METRICS = 16
NONE, SET, DELETE = ErrorCode.NONE, 0, 1
SENT = "org.apache.kafka.producer.record.send.total"


def read_json(data: bytes) -> Iterator[Point]:
    """Points as JSON, in place of OpenTelemetry's messages."""
    try:
        yield from msgspec.json.decode(data or b"[]", type=list[Point])
    except msgspec.DecodeError as error:
        raise UnreadableMetricsError(str(error)) from error


def points(*values: float, name: str = SENT, is_delta: bool = False) -> bytes:
    rows = [Point(name, (("topic", f"t{at}"),), value, True, is_delta) for at, value in enumerate(values)]
    return msgspec.json.encode(rows)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(tmp_path / "data", telemetry_max_bytes="100000", metrics_series_max="20")
    harness.read_otlp = read_json
    await harness.start()
    yield harness
    await harness.stop()


@pytest.fixture
async def wire(broker: Harness) -> Wire:
    wire = await broker.wire()
    await wire.call(ApiVersionsRequest(client_software_name="probe", client_software_version="1.2"), 3)
    return wire


async def subscribe(wire: Wire, name: str = "all", operation: int = SET, **settings: str) -> tuple[int, str | None]:
    settings = settings or {"metrics": "*", "interval_ms": "1000"}
    configs = [
        IncrementalAlterConfigsRequestConfig(name=key.replace("_", "."), config_operation=operation, value=value)
        for key, value in settings.items()
    ]
    row = IncrementalAlterConfigsRequestResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    answer = await wire.call(IncrementalAlterConfigsRequest(resources=[row], validate_only=False), 0)
    return answer.responses[0].error_code, answer.responses[0].error_message


async def get(wire: Wire, instance_id: bytes = bytes(16)) -> GetTelemetrySubscriptionsResponse:
    answer: GetTelemetrySubscriptionsResponse = await wire.call(
        GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0
    )
    return answer


async def push(wire: Wire, to: GetTelemetrySubscriptionsResponse, data: bytes, codec: int = 0, **fields: Any) -> int:
    request = PushTelemetryRequest(
        **{
            "client_instance_id": to.client_instance_id,
            "subscription_id": to.subscription_id,
            "compression_type": codec,
            "metrics": data,
            **fields,
        }
    )
    code: int = (await wire.call(request, 0)).error_code
    return code


async def test_a_client_gets_an_id_and_the_union_of_the_subscriptions_that_select_it(wire: Wire) -> None:
    await subscribe(wire, "a", metrics="org.apache.kafka.producer.,x", interval_ms="5000", match="client_id=wi.e")
    await subscribe(wire, "b", metrics="x,y", match="client_software_name=probe,client_software_version=1\\..*")
    await subscribe(wire, "c", metrics="*", interval_ms="100", match="client_id=other")
    await subscribe(wire, "d", metrics="no", match="client_id=wir")
    answer = await get(wire)
    assert UUID(bytes=answer.client_instance_id).version == 4
    assert answer.requested_metrics == ["org.apache.kafka.producer.", "x", "y"]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes, answer.delta_temporality) == (5_000, 100_000, False)
    assert sorted(answer.accepted_compression_types) == [1, 2, 3, 4]


async def test_without_a_subscription_nothing_is_asked_for(wire: Wire) -> None:
    answer = await get(wire)
    assert (answer.requested_metrics, answer.push_interval_ms) == ([], 300_000)


async def test_all_metrics_swallow_prefixes(wire: Wire) -> None:
    await subscribe(wire, "a", metrics="x,*")
    assert (await get(wire)).requested_metrics == ["*"]


async def test_a_push_comes_out_at_the_page_with_the_labels_of_its_client(broker: Harness, wire: Wire) -> None:
    await subscribe(wire)
    to = await get(wire)
    assert await push(wire, to, points(5)) == NONE
    scraper = await Scraper(broker).scrape()
    labels = {
        "client_id": "wire",
        "software": "probe",
        "version": "1.2",
        "client_instance_id": str(UUID(bytes=to.client_instance_id)),
        "topic": "t0",
    }
    assert scraper.value("client_producer_record_send_total", **labels) == 5
    assert scraper.value("telemetry_client_instances") == scraper.value("telemetry_pushes_total") == 1
    assert scraper.value("telemetry_push_bytes_total") == len(points(5))
    await asyncio.sleep(1.1)
    assert await push(wire, to, points(7)) == NONE
    assert await push(wire, to, points(3, is_delta=True), terminating=True) == NONE
    await scraper.scrape()
    assert scraper.value("client_producer_record_send_total", **labels) == 10


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
async def test_every_compression_type_is_read(broker: Harness, wire: Wire, codec: int) -> None:
    await subscribe(wire)
    assert await push(wire, await get(wire), compress(codec, points(5)), codec) == NONE
    scraper = await Scraper(broker).scrape()
    assert list(scraper.of("client_producer_record_send_total").values()) == [5]


async def test_requests_that_come_too_early_are_throttled(wire: Wire) -> None:
    await subscribe(wire)
    to = await get(wire)
    assert (await get(wire, to.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(wire, to, points(1)) == NONE  # right after the subscription
    assert await push(wire, to, points(1)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await asyncio.sleep(1.1)
    assert await push(wire, to, points(1)) == NONE
    assert await push(wire, to, points(1), terminating=True) == NONE  # the last one may come at any time
    await asyncio.sleep(1.1)
    assert await push(wire, to, points(1)) == ErrorCode.INVALID_REQUEST


async def test_a_changed_subscription_is_asked_for_at_once(wire: Wire) -> None:
    await subscribe(wire)
    to = await get(wire)
    await subscribe(wire, metrics="x", interval_ms="1000")
    assert await push(wire, to, points(1)) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = await get(wire, to.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (NONE, ["x"])
    assert again.subscription_id != to.subscription_id
    assert await push(wire, again, points(1)) == NONE
    await subscribe(wire, operation=DELETE, metrics="", interval_ms="")
    assert (await get(wire, to.client_instance_id)).requested_metrics == []


async def test_refused_pushes(broker: Harness, wire: Wire) -> None:
    await subscribe(wire)
    for fields, code in (
        ({"client_instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(100_001)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"no json"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"no gzip", "compression_type": 1}, ErrorCode.INVALID_RECORD),
    ):
        assert await push(wire, await get(wire), points(1), **fields) == code
    scraper = await Scraper(broker).scrape()
    assert scraper.value("telemetry_refusals_total", code="INVALID_RECORD") == 2


async def test_a_bomb_costs_its_connection_and_no_memory(broker: Harness, wire: Wire) -> None:
    await subscribe(wire)
    to = await get(wire)
    assert broker.node is not None
    limit = broker.node.broker.config.limits.telemetry_inflated_bytes_max
    for codec in ("gzip", "zstd", "lz4"):
        bomber = await broker.wire()
        to = await get(bomber)
        bomb = compress(CODECS[codec], bytes(limit + 1))
        assert len(bomb) < 100_000
        bomber.send(
            PushTelemetryRequest(
                client_instance_id=to.client_instance_id,
                subscription_id=to.subscription_id,
                compression_type=CODECS[codec],
                metrics=bomb,
            ),
            0,
        )
        assert await bomber.closed_by_peer()
    assert (await get(wire)).error_code == NONE


async def test_series_are_bounded_and_the_log_says_it_once(broker: Harness, wire: Wire) -> None:
    await subscribe(wire)
    to = await get(wire)
    assert await push(wire, to, points(*range(30))) == NONE
    scraper = await Scraper(broker).scrape()
    assert len(scraper.of("client_producer_record_send_total")) == 20
    assert scraper.value("telemetry_dropped_values_total") == 10
    assert len(broker.log.of("client_metrics_dropped")) == 1


async def test_instances_are_bounded_and_end_by_silence(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data")
    harness.read_otlp = read_json
    await harness.start()
    assert harness.node is not None
    broker = harness.node.broker
    broker.config.limits = msgspec.structs.replace(Limits(), telemetry_instances_max=3)
    wire = await harness.wire()
    await subscribe(wire)
    for _ in range(5):
        assert await push(wire, await get(wire), points(1)) == NONE
    assert broker.telemetry is not None
    assert (len(broker.telemetry), broker.telemetry.counters.evicted) == (3, 2)
    await asyncio.sleep(61)
    assert list(broker.telemetry.instances()) == []
    scraper = await Scraper(harness).scrape()
    assert not scraper.of("client_producer_record_send_total")
    assert scraper.value("telemetry_evicted_instances_total") == 2
    await harness.stop()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"metrics": "", "unknown": "1"}, ErrorCode.INVALID_REQUEST),
        ({"interval_ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "colour=red"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_settings_that_are_refused(wire: Wire, settings: dict[str, str], code: int) -> None:
    assert (await subscribe(wire, **settings))[0] == code


async def test_a_subscription_needs_a_name(wire: Wire) -> None:
    assert (await subscribe(wire, ""))[0] == ErrorCode.INVALID_REQUEST


async def test_settings_are_described_and_survive_a_restart(broker: Harness, wire: Wire) -> None:
    await subscribe(wire, metrics="a,b", match="client_id=x")
    await broker.restart()
    wire = await broker.wire()
    resource = DescribeConfigsRequestResource(
        resource_type=CLIENT_METRICS, resource_name="all", configuration_keys=None
    )
    (row,) = (await wire.call(DescribeConfigsRequest(resources=[resource]), 4)).results
    found = {config.name: (config.value, config.config_source) for config in row.configs}
    assert found == {"metrics": ("a,b", 7), "interval.ms": ("300000", 5), "match": ("client_id=x", 7)}


async def test_the_apis_are_offered_by_a_broker_with_a_receiver_alone(wire: Wire, tmp_path: Path) -> None:
    async def keys(of: Wire) -> set[int]:
        return {row.api_key for row in (await of.call(ApiVersionsRequest(), 0)).api_keys}

    assert {71, 72} <= await keys(wire)
    without = await Harness(tmp_path / "without").start()
    assert not {71, 72} & await keys(await without.wire())
    await without.stop()
    off = Harness(tmp_path / "off", metrics_listener="")
    off.read_otlp = read_json
    await off.start()
    assert not {71, 72} & await keys(await off.wire())
    await off.stop()


async def test_subscriptions_are_settings_of_the_cluster_and_pushes_need_no_right(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    assert (await subscribe(wire))[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await allow(harness, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    assert (await subscribe(wire))[0] == NONE
    assert NEEDS[71] == NEEDS[72] == ()


def test_a_push_may_come_early_after_a_subscription_only_once() -> None:
    instance = Instance(("", "", "", ""), 0.0)
    instance.interval_ms = 1_000
    assert instance.take_get(0.0)
    assert [instance.take_push(at) for at in (0.5, 0.6, 1.4, 1.6)] == [True, False, False, True]
