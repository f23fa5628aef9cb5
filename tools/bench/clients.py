"""The measured work of one client in its own process: `python -m tools.bench.clients WORK {json}` prints one JSON line.

Every worker warms up first (connection, metadata, producer id), then measures only the named work.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import statistics
import sys
import time
from functools import partial
from itertools import pairwise
from typing import Any

VALUE = b"x" * 100
TOPIC = "bench"


def rate(count: int, seconds: float) -> dict[str, float]:
    return {"records": count, "seconds": round(seconds, 3), "records_per_s": round(count / seconds)}


def librdkafka_produce(
    address: str | None,
    records: int,
    partitions: int = 1,
    topic: str = TOPIC,
    security: dict[str, str] | None = None,
) -> dict[str, float]:
    """Produce idempotently with confluent-kafka; without an address, to librdkafka's own mock broker.

    `security`: librdkafka's settings of TLS.
    """
    from confluent_kafka import Producer

    where = {"test.mock.num.brokers": 1} if address is None else {"bootstrap.servers": address}
    producer = Producer(
        {
            **where,
            **(security or {}),
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    failed: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(topic, VALUE, partition=0, on_delivery=note)
    producer.flush(30)
    send = producer.produce
    started = time.perf_counter()
    for i in range(records):
        while True:
            try:
                send(topic, VALUE, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    seconds = time.perf_counter() - started
    if left or failed:
        raise SystemExit(f"{left} records were not delivered: {failed[:1]}")
    return rate(records, seconds)


def librdkafka_consume(
    address: str,
    records: int,
    topic: str = TOPIC,
    isolation: str = "read_uncommitted",
    security: dict[str, str] | None = None,
) -> dict[str, float]:
    """Read from the first offset with confluent-kafka, 10,000 messages per call."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            **(security or {}),
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.min.bytes": 1,
            "fetch.message.max.bytes": 8 << 20,
            "queued.max.messages.kbytes": 1 << 18,
            "queued.min.messages": 1_000_000,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    count, started = 0, time.perf_counter()
    while count < records:
        got = consumer.consume(min(10_000, records - count), 5.0)  # a larger count would wait for the timeout
        if not got:
            raise SystemExit(f"only {count} of {records} records came")
        count += len(got)
    seconds = time.perf_counter() - started
    consumer.close()
    return rate(count, seconds)


def librdkafka_round_trip(address: str, times: int) -> dict[str, float]:
    """Produce one record and wait until a consumer has it, then the next. Returns milliseconds."""
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "fetch.wait.max.ms": 500, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("round-trip", 0, OFFSET_END)])
    producer.produce("round-trip", b"warm-up", partition=0)
    producer.flush(10)
    while consumer.poll(0.5) is None:
        producer.produce("round-trip", b"warm-up", partition=0)
        producer.flush(10)
    while consumer.poll(0.5) is not None:
        pass
    took = []
    for i in range(times):
        started = time.perf_counter()
        producer.produce("round-trip", b"%d" % i, partition=0)
        producer.poll(0)
        message = consumer.poll(5)
        took.append((time.perf_counter() - started) * 1000)
        assert message is not None, f"record {i} did not come back"
        assert message.value() == b"%d" % i, (message.value(), i)
    consumer.close()
    took.sort()
    return {
        "p50_ms": round(statistics.median(took), 3),
        "p99_ms": round(took[int(len(took) * 0.99)], 3),
        "times": times,
    }


async def _asyncio_produce(module: str, address: str, records: int, partitions: int) -> dict[str, float]:
    api = importlib.import_module(module)
    producer = api.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True, linger_ms=5)
    await producer.start()
    await producer.send_and_wait(TOPIC, VALUE, partition=0)
    started = time.perf_counter()
    for i in range(records):
        await producer.send(TOPIC, VALUE, partition=i % partitions)
    await producer.flush()
    seconds = time.perf_counter() - started
    await producer.stop()
    return rate(records, seconds)


async def _asyncio_consume(module: str, address: str, records: int, topic: str, isolation: str) -> dict[str, float]:
    api = importlib.import_module(module)
    consumer = api.AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    await consumer.start()
    count, started, before = 0, time.perf_counter(), time.process_time()
    while count < records:
        got = await consumer.getmany(timeout_ms=30_000)  # the consumer may skip many aborted records
        if not got:
            raise SystemExit(f"only {count} of {records} records came")
        count += sum(map(len, got.values()))
    seconds = time.perf_counter() - started
    spent = time.process_time() - before
    await consumer.stop()
    return {**rate(count, seconds), "cpu_s": round(spent, 3)}


def asyncio_produce(module: str, address: str, records: int, partitions: int = 1) -> dict[str, float]:
    """Call `await producer.send(...)` in a loop, then `flush`, in a module with aiokafka's names."""
    return asyncio.run(_asyncio_produce(module, address, records, partitions))


def asyncio_consume(
    module: str, address: str, records: int, topic: str = TOPIC, isolation: str = "read_uncommitted"
) -> dict[str, float]:
    """Call `getmany` in a loop from the first offset, in a module with aiokafka's names."""
    return asyncio.run(_asyncio_consume(module, address, records, topic, isolation))


def librdkafka_transactions(address: str | None, transactions: int, records: int) -> dict[str, float]:
    """Run transactions of `records` records over four partitions (one, for one record) with confluent-kafka."""
    from confluent_kafka import Producer

    where = {"test.mock.num.brokers": 1} if address is None else {"bootstrap.servers": address}
    producer = Producer({**where, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions(30)
    took = []
    for i in range(transactions + 5):
        if i == 5:  # the first ones create topics and find coordinators
            started = time.perf_counter()
        begun = time.perf_counter()
        producer.begin_transaction()
        for record in range(records):
            producer.produce("bench-transactions", VALUE, partition=record % 4 if records > 1 else 0)
        producer.commit_transaction(30)
        took.append((time.perf_counter() - begun) * 1000)
    seconds = time.perf_counter() - started
    return {"transactions_per_s": round(transactions / seconds, 1), "p50_ms": round(statistics.median(took[5:]), 3)}


async def _asyncio_transactions(module: str, address: str, transactions: int) -> dict[str, float]:
    api = importlib.import_module(module)
    producer = api.AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"bench-{module}")
    await producer.start()
    for i in range(transactions + 5):
        if i == 5:
            started = time.perf_counter()
        async with producer.transaction():
            await producer.send("bench-transactions", VALUE, partition=0)
    seconds = time.perf_counter() - started
    await producer.stop()
    return {"transactions_per_s": round(transactions / seconds, 1)}


def asyncio_transactions(module: str, address: str, transactions: int) -> dict[str, float]:
    """Run one-record transactions one after the other, in a module with aiokafka's names."""
    return asyncio.run(_asyncio_transactions(module, address, transactions))


async def _crowd(address: str, producers: int, transactions: int) -> dict[str, float]:
    from semel import Producer

    took: list[float] = []

    async def one(number: int) -> None:
        async with Producer(bootstrap_servers=address, transactional_id=f"crowd-{number}") as producer:
            for i in range(transactions + 1):
                begun = time.perf_counter()
                async with producer.transaction():
                    await producer.send("bench-transactions", VALUE, partition=number % 4)
                if i:
                    took.append((time.perf_counter() - begun) * 1000)

    await asyncio.gather(*(one(number) for number in range(producers)))
    took.sort()
    return {"p50_ms": round(statistics.median(took), 2), "p99_ms": round(took[int(len(took) * 0.99)], 2)}


def crowd(address: str, producers: int, transactions: int) -> dict[str, float]:
    """Run many transactional producers of semel's client at once; return the latency of whole transactions in
    milliseconds.
    """
    return asyncio.run(_crowd(address, producers, transactions))


def probe(address: str, topic: str, seconds: float, every_s: float) -> dict[str, float]:
    """Send a record every `every_s` seconds; return the longest time without an acknowledgement, and latencies."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
    acknowledged: list[float] = []
    took: list[float] = []

    def sent(at: float, error: object, _: object) -> None:
        if error is not None:
            raise SystemExit(f"a record was not delivered: {error}")
        acknowledged.append(time.perf_counter())
        took.append(acknowledged[-1] - at)

    producer.produce(topic, VALUE, partition=0)
    producer.flush(30)
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < seconds:
        producer.produce(topic, VALUE, partition=0, on_delivery=partial(sent, now))
        producer.poll(max(0.0, every_s - (time.perf_counter() - now)))
    producer.flush(60)
    took.sort()
    return {
        "gap_s": round(max(after - before for before, after in pairwise(acknowledged)), 3),
        "p99_s": round(took[int(len(took) * 0.99)], 4),
        "max_s": round(took[-1], 4),
        "records": len(took),
    }


WORK = {
    f.__name__: f
    for f in (
        librdkafka_produce,
        librdkafka_consume,
        librdkafka_round_trip,
        librdkafka_transactions,
        asyncio_produce,
        asyncio_consume,
        asyncio_transactions,
        crowd,
        probe,
    )
}


def main() -> None:
    arguments: dict[str, Any] = json.loads(sys.argv[2])
    print(json.dumps(WORK[sys.argv[1]](**arguments)))


if __name__ == "__main__":
    main()
