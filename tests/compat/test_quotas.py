"""Quotas with librdkafka: the broker throttles it, it reports the throttle times, and nothing is lost."""

from __future__ import annotations

import time
from typing import Any

import pytest
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.quotas import QuotaEntity

BYTES, COUNT = 10_000, 600
RATE = 1_000_000
WINDOW_S = 3
WAIT_S = 60

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def broker() -> Any:
    """The window of rates has three seconds, so that a client may use the quota of two at once."""
    with EphemeralBroker(settings={"quota.window.num": WINDOW_S}) as made:
        yield made


def settings_of(broker: EphemeralBroker, client_id: str) -> dict[str, Any]:
    """The settings of a producer."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "client.id": client_id,
        "enable.idempotence": True,
        "batch.size": 100_000,
    }


def produce_all(producer: Any, topic: str) -> None:
    """Records of `BYTES`, each begins with its number."""
    delivered: list[int] = []
    for number in range(COUNT):
        producer.produce(
            topic,
            number.to_bytes(4, "big") + bytes(BYTES),
            on_delivery=lambda error, message: delivered.append(message.offset()) if error is None else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert delivered == list(range(COUNT))


def test_a_producer_above_its_quota_is_throttled_for_the_time_of_the_excess(broker: EphemeralBroker) -> None:
    """By the broker's own count of throttle times: 6 MB at 1 MB/s are 6 s, less what a window may have at once.

    It takes these seconds, because librdkafka has the clock of the machine.
    """
    import confluent_kafka

    broker.create_topic("throttled")
    entity = QuotaEntity(client_id="loader")
    broker.call(lambda node: node.broker.quotas.alter(entity, [("producer_byte_rate", RATE, False)]))
    reported: list[Any] = []
    producer = confluent_kafka.Producer(settings_of(broker, "loader") | {"throttle_cb": reported.append})
    produce_all(producer, "throttled")

    throttled = broker.node.broker.quotas.quotas.throttled["producer_byte_rate"]
    assert throttled.seconds >= BYTES * COUNT / RATE - WINDOW_S - 1
    assert 0 < throttled.seconds / throttled.count <= WINDOW_S
    producer.poll(1)
    assert reported
    assert all(0 < event.throttle_time <= WINDOW_S for event in reported if event.throttle_time)


def test_a_consumer_above_its_quota_gets_every_record(broker: EphemeralBroker) -> None:
    import confluent_kafka

    broker.create_topic("fetched")
    produce_all(confluent_kafka.Producer(settings_of(broker, "unlimited")), "fetched")
    entity = QuotaEntity(client_id="reader")
    broker.call(lambda node: node.broker.quotas.alter(entity, [("consumer_byte_rate", 2 * RATE, False)]))
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "reader",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("fetched", 0, 0)])
    values = []
    until = time.monotonic() + WAIT_S
    while len(values) < COUNT:
        assert time.monotonic() < until, len(values)
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            values.append(int.from_bytes(message.value()[:4], "big"))
    consumer.close()
    assert values == list(range(COUNT))
    throttled = broker.node.broker.quotas.quotas.throttled["consumer_byte_rate"]
    assert 0 < throttled.seconds / throttled.count <= WINDOW_S
