"""`metrics()` of Producer and Consumer: correct totals, current values, and a page with all of them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Harness
from client.consuming import produce, take, tp, until
from client.fake_broker import ANSWER_LOST, QUICK, SILENT, FakeBroker
from semel import Consumer, Producer
from semel._net.counters import WINDOW_S, Latency
from semel.errors import KafkaError
from semel_protocol.errors import ErrorCode

PAGE = Path(__file__).parents[3] / "docs" / "client-metrics.md"


def of_producer(producer: Producer) -> dict[str, float]:
    return producer.metrics()["producer-metrics"]


def test_a_latency_keeps_its_maximum_for_one_window_after_its_own() -> None:
    latency = Latency()
    assert (latency.count, latency.total_s, latency.max_s(0.0)) == (0, 0.0, 0.0)
    latency.observe(5.0, 100.0)
    latency.observe(1.0, 100.0 + WINDOW_S - 1)
    assert latency.max_s(100.0 + WINDOW_S - 1) == 5.0
    latency.observe(2.0, 100.0 + WINDOW_S)
    assert latency.max_s(100.0 + 2 * WINDOW_S - 1) == 5.0
    assert latency.max_s(100.0 + 2 * WINDOW_S) == 2.0
    assert latency.max_s(100.0 + 10 * WINDOW_S) == 0.0
    assert (latency.count, latency.total_s) == (3, 8.0)


async def test_a_producer_counts_what_it_sent_and_what_was_stored(fake_broker: FakeBroker) -> None:
    async with Producer(bootstrap_servers=fake_broker.address, linger_ms=5) as producer:
        before = of_producer(producer)
        futures = [await producer.send("t", b"value") for _ in range(10)]
        waiting = of_producer(producer)
        assert waiting["buffer-available-bytes"] < waiting["buffer-total-bytes"]
        await asyncio.gather(*futures)
        after = producer.metrics()
    own, topic = after["producer-metrics"], after["producer-topic-metrics.t"]
    assert before["record-send-total"] == 0
    assert own["record-send-total"] == own["record-stored-total"] == topic["record-send-total"] == 10
    assert own["batch-send-total"] == own["produce-total"] == 1
    assert own["batch-size-total"] == topic["byte-total"] > 10 * len(b"value")
    assert own["outgoing-byte-total"] - before["outgoing-byte-total"] > own["batch-size-total"]
    assert own["incoming-byte-total"] > before["incoming-byte-total"]
    assert own["request-total"] == own["response-total"]
    assert own["requests-in-flight"] == own["waiting-threads"] == own["record-error-total"] == 0
    assert own["buffer-available-bytes"] == own["buffer-total-bytes"]
    assert own["connection-count"] == own["connection-creation-total"] > 0
    assert not any(name.startswith("txn-") for name in own)
    ended = of_producer(producer)
    assert ended["connection-count"] == 0
    assert ended["connection-close-total"] == own["connection-count"]


async def test_bytes_of_a_producer_are_those_on_the_wire(fake_broker: FakeBroker) -> None:
    async with Producer(bootstrap_servers=fake_broker.address) as producer:
        await producer.send_and_wait("t", bytes(100_000))
        assert 100_000 < of_producer(producer)["outgoing-byte-total"] < 101_000


async def test_records_sent_again_count_as_retries_and_are_stored_once(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([ANSWER_LOST, int(ErrorCode.NOT_ENOUGH_REPLICAS)])
    async with Producer(bootstrap_servers=fake_broker.address, **QUICK) as producer:
        await producer.send_and_wait("t", b"value")
        own = of_producer(producer)
    assert (own["record-send-total"], own["record-retry-total"], own["record-stored-total"]) == (3, 2, 1)
    assert own["connection-close-total"] == 1


async def test_a_record_that_fails_counts_once_as_an_error(fake_broker: FakeBroker) -> None:
    fake_broker.faults.extend([int(ErrorCode.INVALID_RECORD), SILENT])
    settings: dict[str, Any] = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 1_000, **QUICK}
    async with Producer(bootstrap_servers=fake_broker.address, **settings) as producer:
        for failed in (1, 2):
            with pytest.raises(KafkaError):
                await producer.send_and_wait("t", b"value")
            assert of_producer(producer)["record-error-total"] == failed
    own = of_producer(producer)
    assert (own["record-error-total"], own["record-stored-total"]) == (2, 0)


async def test_a_batch_that_is_sent_as_two_counts_as_split(fake_broker: FakeBroker) -> None:
    fake_broker.faults.append(int(ErrorCode.MESSAGE_TOO_LARGE))
    async with Producer(bootstrap_servers=fake_broker.address, linger_ms=5, **QUICK) as producer:
        await asyncio.gather(*[await producer.send("t", b"value") for _ in range(4)])
        own = of_producer(producer)
    assert (own["batch-split-total"], own["record-stored-total"], own["record-error-total"]) == (1, 4, 0)


async def test_the_latency_of_produce_is_the_time_to_its_answer(fake_broker: FakeBroker) -> None:
    fake_broker.faults.append(SILENT)
    async with Producer(bootstrap_servers=fake_broker.address, request_timeout_ms=2_000, **QUICK) as producer:
        future = await producer.send("t", b"value")
        await asyncio.sleep(1)
        assert of_producer(producer)["requests-in-flight"] == 1
        await future
        own = of_producer(producer)
    assert own["produce-total"] == 1  # the request without an answer has no latency
    assert 0 <= own["request-latency-max"] <= own["request-latency-total"] < 1_000


async def test_transactions_count_by_their_outcome(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"1")
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.send("t", b"2")
        await producer.abort_transaction()
        await producer.begin_transaction()
        own = of_producer(producer)
        assert (own["txn-begin-total"], own["txn-commit-total"], own["txn-abort-total"]) == (4, 2, 1)
        assert own["txn-prepare-total"] == 0
        assert own["txn-commit-time-ns-total"] >= 0
    assert of_producer(producer)["txn-abort-total"] == 2  # `stop` aborts the open one


async def test_a_consumer_counts_the_records_it_handed_out(bootstrap: str) -> None:
    await produce(bootstrap, [b"%d" % number for number in range(1_200)])
    async with Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        for taken in (1, 10, 700):
            await take(consumer, taken - consumer_fetches(consumer)["records-consumed-total"])
            assert consumer_fetches(consumer)["records-consumed-total"] == taken
        consumer.seek(tp(0), 1_190)
        assert consumer_fetches(consumer)["records-consumed-total"] == 700
        found = await consumer.getmany(timeout_ms=10_000)
        assert sum(map(len, found.values())) == 10
        fetches = consumer_fetches(consumer)
    assert fetches["records-consumed-total"] == consumer_fetches(consumer)["records-consumed-total"] == 710
    assert 0 < fetches["bytes-consumed-total"] <= consumer.metrics()["consumer-metrics"]["incoming-byte-total"]
    assert fetches["fetch-total"] > 0
    assert fetches["fetch-latency-total"] >= fetches["fetch-latency-max"]


def consumer_fetches(consumer: Consumer) -> dict[str, Any]:
    return consumer.metrics()["consumer-fetch-manager-metrics"]


async def test_the_lag_is_what_the_consumer_has_not_read(bootstrap: str) -> None:
    await produce(bootstrap, [b"%d" % number for number in range(10)])
    async with Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        await take(consumer, 4)
        found = consumer.metrics()
        assert found["consumer-fetch-manager-metrics.t-0"] == {"records-lag": 6, "records-lead": 4}
        assert found["consumer-fetch-manager-metrics"]["records-lag-max"] == 6
        consumer.unsubscribe()
        assert "consumer-fetch-manager-metrics.t-0" not in consumer.metrics()


async def test_under_read_committed_the_lag_ends_at_the_last_stable_offset(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        await produce(bootstrap, [b"1", b"2"])
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"open")
        for isolation, lag in (("read_committed", 1), ("read_uncommitted", 2)):
            settings: dict[str, Any] = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
            async with Consumer("t", bootstrap_servers=bootstrap, **settings) as consumer:
                await take(consumer, 1)
                assert consumer_fetches(consumer)["records-lag-max"] == lag


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_counts_its_rebalances_heartbeats_and_commits(bootstrap: str, protocol: Any) -> None:
    await produce(bootstrap, [b"1"])
    async with Consumer(
        "t", bootstrap_servers=bootstrap, group_id="g", group_protocol=protocol, auto_offset_reset="earliest"
    ) as consumer:
        await take(consumer, 1)
        await consumer.commit()
        await asyncio.sleep(10)
        own = consumer.metrics()["consumer-coordinator-metrics"]
    assert (own["assigned-partitions"], own["rebalance-total"]) == (1, 1)
    assert own["commit-total"] >= 1
    assert own["commit-latency-total"] >= own["commit-latency-max"] >= 0
    assert own["heartbeat-total"] >= 2
    assert bool(own["join-total"]) == (protocol == "classic")


@pytest.mark.semel_only("waits for 170 s, which virtual time alone makes short")
async def test_the_last_poll_is_the_last_call_for_records(bootstrap: str) -> None:
    await produce(bootstrap, [b"1", b"2", b"3"])
    async with Consumer("t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        assert "last-poll-seconds-ago" not in consumer.metrics()["consumer-metrics"]
        await take(consumer, 1)
        await asyncio.sleep(100)
        assert 99 <= consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"] <= 101
        await consumer.getone()  # a decoded record: noticed at the next heartbeat
        await asyncio.sleep(50)
        assert 40 <= consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"] <= 51
        await take(consumer, 1)
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(20)
        assert consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"] == 0
        waiting.cancel()


def test_metrics_of_clients_that_were_not_started_are_zero() -> None:
    async def run() -> None:
        own = of_producer(Producer(transactional_id="x"))
        assert own.pop("buffer-total-bytes") == own.pop("buffer-available-bytes") > 0
        assert not any(own.values())
        assert not any(Consumer(group_id="g").metrics()["consumer-metrics"].values())

    asyncio.run(run())


async def test_the_page_lists_every_name(broker: Harness, bootstrap: str) -> None:
    await produce(bootstrap, [b"1"])
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE.read_text()))
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer,
        Consumer("t", bootstrap_servers=bootstrap, **settings) as consumer,
    ):
        async with producer.transaction():
            await producer.send("t", b"1")
        await take(consumer, 1)
        await until(lambda: "records-lag-max" in consumer_fetches(consumer))
        found = producer.metrics() | consumer.metrics()
    names = {name for group in found.values() for name in group}
    groups = {group.partition(".")[0] for group in found}
    assert names - listed == set()
    assert {name for name in listed if not name.endswith("-metrics")} - names == set()
    assert {name for name in listed if name.endswith("-metrics")} == {g for g in groups if g in listed}
