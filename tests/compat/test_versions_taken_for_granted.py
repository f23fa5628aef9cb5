"""kafka-python with `api_version`: it takes the versions of that Kafka for granted, and not those that are offered.

It does so if the broker offers so many APIs that it looks at least as new (BrokerVersionData). A version that is not
served ends the connection, and the client tries again without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition
from semel_broker.config.loading import load
from semel_broker.handlers.api_versions import offered
from support.processes import BrokerProcess

KAFKA_4_1 = (4, 1)
FOR_CLIENTS = {21: 2, 24: 3, 25: 4, 26: 5, 28: 5, 33: 2, 42: 2, 44: 1}
"""API key -> the last version that a client of Kafka 4.1 sends."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", **{"group.initial.rebalance.delay.ms": "0"}).start()
    yield process
    process.stop()


def test_the_versions_that_clients_of_kafka_4_1_send_are_offered() -> None:
    served = offered(load())
    assert {key: min(served[key][1], last) for key, last in FOR_CLIENTS.items()} == FOR_CLIENTS


def test_a_transaction_with_offsets_of_a_client_that_asks_for_no_versions(broker: BrokerProcess) -> None:
    at = {"bootstrap_servers": broker.address, "api_version": KAFKA_4_1}
    producer = KafkaProducer(**at, transactional_id="shop")
    consumer = KafkaConsumer(
        "orders", **at, group_id="kitchen", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"one kettle", partition=0).get(10)
    producer.send_offsets_to_transaction({TopicPartition("orders", 0): OffsetAndMetadata(0, "", -1)}, "kitchen")
    producer.commit_transaction()
    found: list[bytes] = []
    for _ in range(20):
        found += [record.value for records in consumer.poll(500).values() for record in records]
        if found:
            break
    consumer.close()
    producer.close()
    assert found == [b"one kettle"]
