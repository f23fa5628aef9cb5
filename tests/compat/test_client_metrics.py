"""Metrics that librdkafka pushes (KIP-714) come out at /metrics, and its last push when it closes."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest
from semel_broker.testing.in_process import EphemeralBroker
from semel_broker.topics import dynamic_configs

pytest.importorskip("opentelemetry.proto")
pytestmark = pytest.mark.real_time
WAIT_S = 30


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(settings={"metrics.listener": "127.0.0.1:0"}) as made:
        settings = {"metrics": "*", "interval.ms": "200", "match": "client_id=check.*"}
        made.call(
            lambda node: dynamic_configs.alter_client_metrics(
                node.broker.store, node.broker.feed, "all", lambda _: settings
            )
        )
        yield made


def page(broker: EphemeralBroker) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def test_what_librdkafka_pushes_is_at_the_page(broker: EphemeralBroker) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "checkout"})
    other = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "billing"})
    deadline = time.monotonic() + WAIT_S
    created = re.compile(
        r'^semel_client_producer_connection_creation_total\{client_id="checkout",software="conf.*\} 1$', re.M
    )
    while not created.search(page(broker)):
        assert time.monotonic() < deadline, page(broker)
        producer.produce("t", b"value")
        other.produce("t", b"value")
        producer.poll(0.1)
    assert 'client_id="billing"' not in page(broker)
    assert "semel_telemetry_refusals_total{" not in page(broker)
    pushes = re.compile(r"^semel_telemetry_pushes_total (\d+)$", re.M)
    before = int(pushes.findall(page(broker))[0])
    producer.flush()
    del producer
    assert int(pushes.findall(page(broker))[0]) > before
