"""Each metric changes when the event that it counts happens. Names are checked by promtool, if it is installed."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, produce_request
from broker.members import WireMember
from broker.metrics.scraping import Scraper
from broker.sasl_login import PASSWORD, ScramLogin, make_user
from broker.transactional import TransactionalProducer
from semel_broker.metrics.exporter import FAMILIES
from semel_broker.metrics.families import MetricType
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from semel_protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel_protocol.quotas import QuotaEntity
from semel_storage.disk.disk import Space
from semel_storage.disk.waiting_calls import WaitingCall

CLIENT = {"source": "client"}


async def test_requests_are_counted_with_bytes_and_phases(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    scraper = await Scraper(broker).scrape()
    request = produce_request("t", batch(b"one"))
    for _ in range(3):
        await wire.call(request, 9)
    await scraper.scrape()
    produce = {**CLIENT, "api": "Produce"}
    assert scraper.moved("requests_total", **produce) == 3
    assert scraper.moved("request_bytes_total", **produce) > 3 * 70
    assert scraper.moved("response_bytes_total", **produce) > 3 * 20
    assert scraper.moved("request_queue_seconds_count", **produce) == 3
    assert scraper.moved("request_handle_seconds_count", **produce) == 3
    assert not scraper.of("request_errors_total")


async def test_only_requests_that_wait_are_in_the_time_of_waiting(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", num_partitions="1")
    wire, reader = await broker.wire(), await broker.wire()
    await wire.create_topic("t")
    waiting = asyncio.create_task(reader.fetch("t", 0, max_wait_ms=2_000))
    await asyncio.sleep(0.4)
    await wire.produce("t", batch(b"one"))
    await waiting
    scraper = await Scraper(broker).scrape()
    assert scraper.value("request_wait_seconds_count", **CLIENT, api="Fetch") == 1
    assert scraper.value("request_wait_seconds_bucket", **CLIENT, api="Fetch", le="0.25") == 0
    assert scraper.value("request_wait_seconds_bucket", **CLIENT, api="Fetch", le="0.5") == 1
    assert scraper.value("request_wait_seconds_count", **CLIENT, api="Produce") == 0


async def test_an_answer_that_waits_for_an_earlier_one_is_in_the_time_of_sending(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="fsync")
    wire = await broker.wire()
    await wire.create_topic("t")
    wire.send(produce_request("t", batch(b"one")), 9)
    wire.send(produce_request("missing-topic", batch(b"two")), 9)
    await wire.receive()
    await wire.receive()
    scraper = await Scraper(broker).scrape()
    assert scraper.value("request_send_seconds_count", **CLIENT, api="Produce") in (0, 1)
    assert scraper.value("request_send_seconds_count", **CLIENT, api="CreateTopics") == 0


async def test_errors_are_counted_by_name_for_each_partition(start_broker: StartBroker) -> None:
    broker = await start_broker(auto_create_topics_enable="false")
    wire = await broker.wire()
    await wire.call(produce_request("missing", batch(b"one")), 9)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("request_errors_total", **CLIENT, api="Produce", code="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert scraper.value("log_refused_batches_total", code="UNKNOWN_TOPIC_OR_PARTITION") == 1


async def test_connections_are_counted_by_listener_and_client_software(broker: Harness) -> None:
    wire = await broker.wire()
    request = ApiVersionsRequest(client_software_name="semel-test", client_software_version="1.2")
    await wire.call(request, 3)
    odd = await broker.wire()
    await odd.call(ApiVersionsRequest(client_software_name='a"b\n', client_software_version="1"), 3)
    scraper = await Scraper(broker).scrape()
    of = {"listener": "PLAINTEXT"}
    assert scraper.value("connections", **of, software="semel-test", version="1.2") == 1
    assert scraper.value("connections", **of, software="other", version="") == 1
    assert scraper.value("connections_opened_total", **of) == 2
    await wire.close()
    await odd.close()
    await asyncio.sleep(0.1)
    await scraper.scrape()
    assert scraper.of("connections") == {}
    assert scraper.value("connections_closed_total", **of, reason="peer_closed") == 2


async def test_appends_are_counted_by_topic(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", 2)
    first = batch(b"a", b"b", b"c", producer_id=await wire.new_producer(), producer_epoch=0, base_sequence=0)
    await wire.produce("t", first)
    await wire.produce("t", first)
    await wire.produce("t", batch(b"d"), partition=1)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("log_records_appended_total", topic="t") == 4
    assert scraper.value("log_batches_appended_total", topic="t") == 2
    assert scraper.value("log_duplicates_total", topic="t") == 1
    assert scraper.value("log_partitions", topic="t") == 2
    assert scraper.value("log_segments", topic="t") == 2
    size = scraper.value("log_size_bytes", topic="t")
    assert size == scraper.value("log_bytes_appended_total", topic="t")
    assert size is not None
    assert size > 120
    assert scraper.value("log_recovery_seconds") is not None


async def test_a_sync_is_timed_and_counts_the_batches_that_it_made_durable(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="fsync")
    wire = await broker.wire()
    await wire.create_topic("t")
    scraper = await Scraper(broker).scrape()
    await wire.produce("t", batch(b"a"))
    await scraper.scrape()
    assert scraper.moved("log_sync_batches_count") == 1
    assert scraper.moved("log_sync_batches_sum") == 1
    assert scraper.moved("log_sync_seconds_count") >= 1


async def test_a_full_disk_and_partitions_that_cannot_be_used_are_shown(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(log_min_free_bytes="1000")
    wire = await broker.wire()
    await wire.create_topic("t")
    assert broker.node is not None
    topics = broker.node.broker.topics
    scraper = await Scraper(broker).scrape()
    assert scraper.value("disk_min_free_bytes") == 1000
    assert scraper.value("disk_free_bytes") == topics.local.space.free_bytes
    assert (scraper.value("disk_writes_refused"), scraper.value("log_partitions_unusable")) == (0, 0)
    monkeypatch.setattr(broker.node.broker.world.disk, "space", lambda path: Space(999, 1 << 30))
    topics.local.space.look()
    topics.partition("t", 0).take_offline("damaged")
    await scraper.scrape()
    assert scraper.value("disk_free_bytes") == 999
    assert (scraper.value("disk_writes_refused"), scraper.value("log_partitions_unusable")) == (1, 1)


async def test_a_disk_that_hangs_is_shown(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker()
    assert broker.node is not None
    scraper = await Scraper(broker).scrape()
    assert (scraper.value("disk_waiting_seconds"), scraper.value("disk_hangs")) == (0, 0)
    disk, hangs = broker.node.broker.world.disk, broker.node.broker.topics.local.hangs
    monkeypatch.setattr(disk, "oldest_call", lambda: WaitingCall("data", 12.5))
    hangs.look()
    await scraper.scrape()
    assert (scraper.value("disk_waiting_seconds"), scraper.value("disk_hangs")) == (12.5, 1)


async def test_transactions_are_counted_by_their_end(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire).init()
    await producer.produce("t", b"one")
    scraper = await Scraper(broker).scrape()
    assert scraper.value("transactions_begun_total") == 1
    assert scraper.value("transactions_open") == 1
    assert scraper.value("transactional_ids") == 1
    assert await producer.end() == 0
    await producer.produce("t", b"two")
    assert await producer.end(commit=False) == 0
    await scraper.scrape()
    assert scraper.value("transactions_committed_total") == 1
    assert scraper.value("transactions_aborted_total", cause="client") == 1
    assert scraper.value("transaction_seconds_count") == 2
    assert scraper.value("transactions_open") == 0
    assert scraper.value("transaction_markers_waiting") == 0
    assert scraper.value("transaction_markers_oldest_seconds") == 0
    assert scraper.value("transaction_marker_retries_total") == 0
    assert scraper.of("transaction_fences_total") == {}


async def test_a_fence_aborts_and_has_a_cause(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire).init()
    await producer.produce("t", b"one")
    await asyncio.sleep(1)
    await TransactionalProducer(await broker.wire()).init()
    scraper = await Scraper(broker).scrape()
    assert scraper.value("transaction_fences_total", cause="new_instance") == 1
    assert scraper.value("transactions_aborted_total", cause="new_instance") == 1


async def test_a_transaction_that_times_out_is_aborted_for_that(start_broker: StartBroker) -> None:
    broker = await start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
    wire = await broker.wire()
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire).init(timeout_ms=1_000)
    await producer.produce("t", b"one")
    await asyncio.sleep(5)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("transactions_aborted_total", cause="timed_out") == 1
    assert scraper.value("transaction_fences_total", cause="timed_out") == 1


async def test_an_open_transaction_holds_the_last_stable_offset_back_and_is_named(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire, name='shop "1"').init()
    await producer.produce("t", b"one", b"two")
    await wire.produce("t", batch(b"three"))
    await asyncio.sleep(30)
    scraper = await Scraper(broker).scrape()
    place = {"topic": "t", "partition": "0"}
    assert scraper.value("lso_lag_records", **place) == 3
    assert scraper.value("lso_lag_seconds", **place) == pytest.approx(30, abs=1)
    assert scraper.value("lso_pinned_by", **place, transactional_id='shop "1"') == 1
    assert scraper.value("transaction_oldest_seconds") == pytest.approx(30, abs=1)
    assert await producer.end() == 0
    await scraper.scrape()
    assert scraper.of("lso_lag_records") == scraper.of("lso_lag_seconds") == scraper.of("lso_pinned_by") == {}


async def test_shards_are_counted_by_stage_and_transactions_resume(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire).init()
    await producer.produce("t", b"one")
    await broker.restart()
    assert broker.node is not None
    await broker.node.broker.transactions.loaded()
    scraper = await Scraper(broker).scrape()
    ready = scraper.value("coordinator_shards", coordinator="transactions", stage="ready")
    assert ready == 50
    assert scraper.value("coordinator_shards", coordinator="transactions", stage="failed") == 0
    assert scraper.value("coordinator_load_seconds", coordinator="transactions") is not None
    assert scraper.value("transactions_resumed_total") == 0


async def test_groups_have_members_generation_and_causes_of_rebalances(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    member = WireMember(wire)
    await member.join()
    await member.sync({member.member_id: b""})
    scraper = await Scraper(broker).scrape()
    assert scraper.value("group_members", group="g") == 1
    assert scraper.value("group_generation", group="g") == 1
    assert scraper.value("groups", state="Stable") == 1
    assert scraper.value("group_rebalances_total", cause="joined") == 1
    await asyncio.sleep(30)
    await scraper.scrape()
    assert scraper.value("group_rebalances_total", cause="session_expired") == 1


async def test_rebalances_of_the_consumer_protocol_have_causes(broker: Harness, wire: Wire) -> None:
    """A rebalance is a change that gives the group another epoch; a heartbeat without news is none."""
    await wire.create_topic("t")

    def heartbeat(member_id: str, epoch: int, topics: list[str] | None = None) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=topics,
            topic_partitions=[] if epoch == 0 else None,
        )

    for member_id in ("a", "b"):
        joined = await wire.call(heartbeat(member_id, 0, ["t"]), 1)
    await wire.call(heartbeat("b", joined.member_epoch), 1)
    await wire.call(heartbeat("b", joined.member_epoch, ["t", "u"]), 1)
    await wire.call(heartbeat("a", -1), 1)
    await asyncio.sleep(60)
    scraper = await Scraper(broker).scrape()
    causes = {"joined": 2, "subscribed": 1, "left": 1, "session_expired": 1}
    for cause, count in causes.items():
        assert scraper.value("group_rebalances_total", cause=cause) == count, cause
    assert sum(scraper.of("group_rebalances_total").values()) == sum(causes.values())


async def test_a_clusters_view_of_a_single_broker(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", 3)
    scraper = await Scraper(broker).scrape()
    assert scraper.value("partitions_led") == scraper.value("partitions_replicas") == 3
    assert scraper.value("partitions_by_isr_size", in_sync="1") == 3
    for family in ("partitions_under_replicated", "partitions_under_min_isr", "partitions_offline"):
        assert scraper.value(family) == 0
    assert scraper.value("brokers") == scraper.value("controller") == scraper.value("ready") == 1
    assert scraper.of("session_margin_seconds") == {}, "a broker alone has a session without an end"


async def test_authentications_and_their_failures_are_counted(start_broker: StartBroker) -> None:
    broker = await start_broker(
        listeners="CLIENTS://127.0.0.1:0", listener_security_protocol_map="CLIENTS:SASL_PLAINTEXT"
    )
    await make_user(broker, "alice")
    for password in (PASSWORD, "wrong"):
        wire, login = await broker.wire(), ScramLogin(password=password)
        await wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        first = await wire.call(SaslAuthenticateRequest(auth_bytes=login.first()), 2)
        await wire.call(SaslAuthenticateRequest(auth_bytes=login.final(first.auth_bytes)), 2)
    scraper = await Scraper(broker).scrape()
    of = {"listener": "CLIENTS", "mechanism": "SCRAM-SHA-256"}
    assert scraper.value("authentications_total", **of) == 1
    assert sum(scraper.of("authentication_failures_total").values()) == 1


async def test_refusals_of_the_authorizer_are_counted(start_broker: StartBroker) -> None:
    broker = await start_broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:root"
    )
    wire = await broker.wire()
    response = await wire.call(produce_request("t", batch(b"one")), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scraper = await Scraper(broker).scrape()
    assert sum(scraper.of("authorization_refusals_total").values()) >= 1
    assert scraper.value("audit_lines_lost_total") == 0
    assert scraper.value("audit_refused_requests_total") == 0
    assert scraper.value("log_lines_lost_total") == 0


async def test_throttles_are_counted_by_quota(broker: Harness, wire: Wire) -> None:
    assert broker.node is not None
    quotas = broker.node.broker.quotas.quotas
    quotas.table.change({QuotaEntity(user="ANONYMOUS"): {"producer_byte_rate": 10.0}})
    quotas.changed()
    await wire.create_topic("t")
    await wire.produce("t", batch(b"x" * 1_000))
    scraper = await Scraper(broker).scrape()
    assert scraper.value("throttles_total", quota="producer_byte_rate") == 1
    seconds = scraper.value("throttle_seconds_total", quota="producer_byte_rate")
    assert seconds is not None
    assert seconds > 1


async def test_series_above_the_bound_are_left_out_and_counted(start_broker: StartBroker) -> None:
    broker = await start_broker(metrics_series_max="14", durability="os")
    wire = await broker.wire()
    for name in ("a", "b", "c"):
        await wire.create_topic(name)
        await wire.produce(name, batch(b"x"))
    scraper = await Scraper(broker).scrape()
    assert scraper.value("log_records_appended_total", topic="a") == 1
    assert scraper.value("log_size_bytes", topic="b") is not None
    assert scraper.value("log_size_bytes", topic="c") is None
    assert scraper.value("metrics_dropped_series") == 3 * 6 - 14
    assert scraper.value("partitions_led") == 3, "families without names of users are always whole"


def test_every_family_is_moved_by_a_test() -> None:
    folders = [Path(__file__).parents[1] / name for name in ("metrics", "cluster", "telemetry")]
    texts = "".join(path.read_text() for folder in folders for path in sorted(folder.glob("test_*.py")))
    missing = [family.name for family in FAMILIES if family.name.removeprefix("semel_") not in texts]
    assert not missing


def test_names_have_the_form_of_prometheus() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"semel_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind is MetricType.COUNTER), family.name
        assert family.about.endswith("."), family.about
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


@pytest.mark.real_time
async def test_promtool_accepts_the_page(start_broker: StartBroker) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    broker = await start_broker()
    wire = await broker.wire()
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire, name='quote " backslash \\ newline \n').init()
    await producer.produce("t", b"one")
    assert broker.node is not None
    text = await Scraper(broker).exporter.text()
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stderr, checked.stderr
