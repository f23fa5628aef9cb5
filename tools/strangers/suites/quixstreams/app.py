"""EDGE: the Quix Streams application: `app.py fill|count|read ...`, run with the Python that has Quix Streams."""

# mypy: ignore-errors

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from quixstreams import Application
from quixstreams.models.topics import TopicConfig

KEYS = 7
PARTITIONS = 2
QUIET_S = 10


def fill(address: str, topic: str, replicas: int, first: int, count: int) -> None:
    """Write numbered records with a few different keys; idempotent."""
    admin = AdminClient({"bootstrap.servers": address})
    if topic not in admin.list_topics(timeout=60).topics:
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, replicas)]).values():
            future.result()
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, key=f"key-{number % KEYS}", value=json.dumps({"number": number}))
        producer.poll(0)
    assert producer.flush(120) == 0


def count(address: str, topic: str, into: str, replicas: int, state: str) -> None:
    """Count the records of each key, and write each with its count; run until it is killed."""
    config = TopicConfig(num_partitions=PARTITIONS, replication_factor=replicas)
    app = Application(
        broker_address=address,
        consumer_group="strangers",
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_interval=0.5,
        state_dir=state,
        consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000},
    )
    source = app.topic(topic, value_deserializer="json", config=config)
    target = app.topic(into, value_serializer="json", config=config)

    def counted(value, state):
        seen = state.get("seen", 0) + 1
        state.set("seen", seen)
        return {"number": value["number"], "seen": seen}

    app.dataframe(source).apply(counted, stateful=True).to_topic(target)
    app.run()


def read(address: str, topic: str) -> None:
    """Print all committed records as JSON lines [key, value]; end when no more arrive for a while."""
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", **settings})
    consumer.subscribe([topic])
    last = time.monotonic()
    while time.monotonic() - last < QUIET_S:
        message = consumer.poll(1)
        if message is None or message.error():
            continue
        last = time.monotonic()
        print(json.dumps([message.key().decode(), json.loads(message.value())]))
    consumer.close()


if __name__ == "__main__":
    do, *words = sys.argv[1:]
    numbers = [int(word) if word.isdigit() else word for word in words]
    {"fill": fill, "count": count, "read": read}[do](*numbers)
