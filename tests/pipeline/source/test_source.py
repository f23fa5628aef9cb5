"""The source on Spark itself, every row counted: batch and stream, restarts, limits, transactions, losses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark_semel.source.progress import lag
from pyspark_semel.source.source import COLUMNS_AND_HEADERS
from semel import Admin, NewTopic, Producer, RecordsToDelete, TopicPartition
from semel_broker.testing.in_process import EphemeralBroker
from support.against import wait_for_leaders

pytestmark = pytest.mark.timeout(240)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class SparkTopics:
    """A broker with topics to fill, and Spark to read them."""

    def __init__(self, spark: SparkSession, broker: EphemeralBroker) -> None:
        self.spark, self.address = spark, broker.bootstrap_servers

    def create(self, name: str, partitions: int = 2, **configs: str) -> None:
        async def creating(admin: Admin) -> None:
            await admin.create_topics([NewTopic(name, partitions, topic_configs=configs)])
            await wait_for_leaders(admin, *(TopicPartition(name, number) for number in range(partitions)))

        self.do(creating)

    def do(self, work: Callable[[Admin], Awaitable[Any]]) -> None:
        async def doing() -> None:
            async with Admin(bootstrap_servers=self.address) as admin:
                await work(admin)

        asyncio.run(doing())

    def put(self, topic: str, values: range, **settings: Any) -> None:
        """Value n goes to partition n % 2, at time 1000 + n."""

        async def putting() -> None:
            async with Producer(bootstrap_servers=self.address, linger_ms=5, **settings) as producer:
                for n in values:
                    await producer.send(topic, b"%d" % n, key=b"k", partition=n % 2, timestamp_ms=1000 + n)
                await producer.flush()

        asyncio.run(putting())

    def transact(self, topic: str, values: range, *, commit: bool) -> None:
        async def working() -> None:
            async with Producer(bootstrap_servers=self.address, transactional_id="x") as producer:
                await producer.begin_transaction()
                for n in values:
                    await producer.send_and_wait(topic, b"%d" % n, partition=n % 2)
                await (producer.commit_transaction() if commit else producer.abort_transaction())

        asyncio.run(working())

    def batch(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("semel").option("kafka.bootstrap.servers", self.address)
        return reader.options(**options).load()

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("semel").option("kafka.bootstrap.servers", self.address)
        return reader.options(**options).load()


@pytest.fixture
def topics(spark: SparkSession, semel_broker: EphemeralBroker) -> SparkTopics:
    return SparkTopics(spark, semel_broker)


class MemoryQuery:
    """A query from a stream into memory: the rows of each batch, with repetitions."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self._frame, self._checkpoint = frame, checkpoint
        self.batches: dict[int, list[list[Row]]] = {}
        self.fail_at: int | None = None

    def start(self, **trigger: Any) -> StreamingQuery:
        def take(batch: DataFrame, batch_id: int) -> None:
            self.batches.setdefault(batch_id, []).append(sorted(batch.collect()))
            if batch_id == self.fail_at:
                raise RuntimeError("the sink is broken")

        writer = self._frame.writeStream.option("checkpointLocation", str(self._checkpoint)).foreachBatch(take)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> StreamingQuery:
        """Run the query over all existing records."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        return query

    def values(self) -> list[int]:
        """The values of all batches, with repetitions."""
        return sorted(int(row.value) for times in self.batches.values() for rows in times for row in rows)


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def until(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    """Run the query until the condition holds."""
    for _ in range(600):
        if condition():
            return
        assert not query.awaitTermination(0.1), query.exception()
    raise AssertionError(query.lastProgress)


# Batch


@pytest.mark.smoke
def test_a_batch_has_kafkas_columns_and_every_record_once(topics: SparkTopics) -> None:
    topics.create("t")
    topics.put("t", range(1000))
    frame = topics.batch(subscribe="t", includeHeaders="true")
    assert frame.schema == COLUMNS_AND_HEADERS
    rows = sorted(frame.collect(), key=lambda row: int(row.value))
    assert [int(row.value) for row in rows] == list(range(1000))
    assert [(row.topic, row.partition, row.offset) for row in rows] == [("t", n % 2, n // 2) for n in range(1000)]
    assert [row.timestamp.timestamp() for row in rows] == [1 + n / 1000 for n in range(1000)]
    assert {(bytes(row.key), row.timestampType, row.headers) for row in rows} == {(b"k", 0, None)}
    assert topics.batch(subscribe="t").columns == COLUMNS_AND_HEADERS.fieldNames()[:-1]


def test_a_batch_lies_between_offsets_or_times(topics: SparkTopics) -> None:
    topics.create("t")
    topics.put("t", range(100))
    between = topics.batch(
        subscribe="t", startingOffsets='{"t": {"0": 10, "1": -2}}', endingOffsets='{"t": {"0": 12, "1": 3}}'
    )
    assert values(between) == [1, 3, 5, 20, 22]
    assert values(topics.batch(subscribe="t", startingTimestamp="1090", endingTimestamp="1095")) == [90, 91, 92, 93, 94]
    later = topics.batch(
        assign='{"t": [1]}', startingOffsetsByTimestamp='{"t": {"1": 1096}}', endingOffsets='{"t": {"1": -1}}'
    )
    assert values(later) == [97, 99]
    assert values(topics.batch(assign='{"t": [0]}')) == list(range(0, 100, 2))


def test_every_codec_headers_nulls_and_log_append_times_are_read(topics: SparkTopics) -> None:
    topics.create("t")
    topics.create("stamped", **{"message.timestamp.type": "LogAppendTime"})
    for number, codec in enumerate(CODECS):
        topics.put("t", range(200 * number, 200 * (number + 1)), compression_type=codec)
    assert values(topics.batch(subscribe="t")) == list(range(1000))

    async def put_some() -> None:
        async with Producer(bootstrap_servers=topics.address) as producer:
            await producer.send_and_wait("stamped", None, key=None, partition=0, headers=[("h", b"1"), ("h", None)])
            await producer.send_and_wait("stamped", b"", key=b"", partition=0)

    asyncio.run(put_some())
    first, second = topics.batch(subscribe="stamped", includeHeaders="true").orderBy("offset").collect()
    assert (first.key, first.value, first.timestampType) == (None, None, 1)
    assert [(h.key, h.value) for h in first.headers] == [("h", b"1"), ("h", None)]
    assert (second.key, second.value, second.headers) == (b"", b"", None)
    assert first.timestamp.year > 2000


def test_a_pattern_reads_all_that_match_and_ranges_are_split_for_more_tasks(topics: SparkTopics) -> None:
    for name in ("log-a", "log-b", "other"):
        topics.create(name)
    topics.put("log-a", range(100))
    topics.put("log-b", range(100, 200))
    topics.put("other", range(1000, 1010))
    frame = topics.batch(subscribePattern="log-.*")
    assert values(frame) == list(range(200))
    assert frame.rdd.getNumPartitions() == 4
    split = topics.batch(subscribePattern="log-.*", minPartitions="8")
    assert split.rdd.getNumPartitions() == 8
    assert values(split) == list(range(200))


def test_an_empty_topic_gives_no_rows_and_an_early_stop_is_harmless(topics: SparkTopics) -> None:
    topics.create("t")
    assert topics.batch(subscribe="t").collect() == []
    topics.put("t", range(1000))
    assert len(topics.batch(subscribe="t").limit(3).collect()) == 3
    assert topics.batch(subscribe="t").count() == 1000


def test_aborted_transactions_are_not_read_unless_asked_for(topics: SparkTopics) -> None:
    topics.create("t")
    for begin in range(0, 60, 10):
        topics.transact("t", range(begin, begin + 10), commit=begin % 20 == 0)
    committed = [n for n in range(60) if n // 10 % 2 == 0]
    assert values(topics.batch(subscribe="t")) == committed
    assert values(topics.batch(subscribe="t", **{"kafka.isolation.level": "read_uncommitted"})) == list(range(60))


def test_missing_records_fail_a_batch_unless_loss_is_allowed(topics: SparkTopics) -> None:
    topics.create("t")
    topics.put("t", range(2000), max_batch_size=300)
    topics.do(lambda admin: admin.delete_records({TopicPartition("t", 0): RecordsToDelete(500)}))
    gone = {"subscribe": "t", "startingOffsets": '{"t": {"0": 400, "1": 0}}'}
    with pytest.raises(Exception, match=r"t-0 holds offsets 500 to 1000; 400 is gone(.|\n)*failOnDataLoss to false"):
        topics.batch(**gone).collect()
    assert values(topics.batch(**gone, failOnDataLoss="false")) == sorted([*range(1000, 2000, 2), *range(1, 2000, 2)])


def test_load_raises_the_error_of_invalid_options(topics: SparkTopics) -> None:
    with pytest.raises(Exception, match=r"no option 'subscribed': did you mean subscribe\?"):
        topics.batch(subscribed="t")
    with pytest.raises(Exception, match="absent does not exist: create it first, or check the name"):
        topics.batch(subscribe="absent").collect()


# Stream


def test_a_stream_continues_at_the_end_of_its_checkpoint(topics: SparkTopics, tmp_path: Path) -> None:
    topics.create("t")
    topics.put("t", range(100))
    query = MemoryQuery(topics.stream(subscribe="t", startingOffsets="earliest"), tmp_path)
    query.run()
    assert query.values() == list(range(100))
    query.run()
    assert query.values() == list(range(100)), "nothing new: nothing again"
    topics.put("t", range(100, 150))
    topics.create("u")
    query.run()
    assert query.values() == list(range(150))


def test_a_running_stream_reads_new_records_and_reports_its_lag(topics: SparkTopics, tmp_path: Path) -> None:
    topics.create("t")
    topics.put("t", range(10))
    query = MemoryQuery(topics.stream(subscribe="t"), tmp_path)
    running = query.start()
    try:
        until(running, lambda: 0 in query.batches)
        for begin in range(10, 40, 10):
            topics.put("t", range(begin, begin + 10))
            until(running, lambda begin=begin: len(query.values()) == begin)  # type: ignore[misc]
        assert query.values() == list(range(10, 40)), "it began at the latest offsets"
        progress = running.lastProgress
        assert progress is not None
        assert lag(progress["sources"][0]) == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}
    finally:
        running.stop()


def test_a_limit_splits_the_backlog_into_batches(topics: SparkTopics, tmp_path: Path) -> None:
    topics.create("t")
    topics.put("t", range(100))
    options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    query = MemoryQuery(topics.stream(**options), tmp_path)
    done = query.run()
    assert [len(times[0]) for times in query.batches.values()] == [30, 30, 30, 10]
    assert query.values() == list(range(100))
    lags = [sum((lag(progress["sources"][0]) or {}).values()) for progress in done.recentProgress]
    assert lags[:4] == [70, 40, 10, 0]


@pytest.mark.parametrize("failing", [0, 1], ids=["the first", "a later one"])
def test_an_uncommitted_batch_is_repeated_exactly(topics: SparkTopics, tmp_path: Path, failing: int) -> None:
    """A first batch that starts at "latest" is the difficult case: "latest" has moved on."""
    topics.create("t")
    topics.put("t", range(10))
    query = MemoryQuery(topics.stream(subscribe="t", maxOffsetsPerTrigger="1000"), tmp_path)
    running = query.start()
    try:
        if failing == 0:
            query.fail_at = 0
        until(running, lambda: True)
        if failing:
            until(running, lambda: 0 in query.batches)
            query.fail_at = 1
            topics.put("t", range(10, 20))
        for n in range(20, 300):
            topics.put("t", range(n, n + 1))
            if not running.isActive:
                break
            time.sleep(0.05)
        assert "the sink is broken" in str(running.exception())
    finally:
        running.stop()
    topics.put("t", range(1000, 1050))
    query.fail_at = None
    query.run()
    assert len(query.batches[failing]) == 2
    assert query.batches[failing][0] == query.batches[failing][1]
    del query.batches[failing][0]
    got = query.values()
    assert len(got) == len(set(got)), "nothing twice"
    assert [n for n in got if n >= 1000] == list(range(1000, 1050))
    middle = [n for n in got if n < 1000]
    assert not middle or middle == list(range(middle[0], middle[-1] + 1)), "no gap"
    offsets = json.loads((tmp_path / "offsets" / str(failing)).read_text().splitlines()[-1])
    assert set(offsets["t"]) == {"0", "1"}


def test_aborted_and_open_transactions_and_their_markers(topics: SparkTopics, tmp_path: Path) -> None:
    topics.create("t")
    topics.transact("t", range(10), commit=True)
    topics.transact("t", range(10, 20), commit=False)
    query = MemoryQuery(topics.stream(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="7"), tmp_path)

    async def with_one_open() -> None:
        async with Producer(bootstrap_servers=topics.address, transactional_id="y") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"100", partition=0)
            await asyncio.to_thread(topics.transact, "t", range(20, 30), commit=True)
            await asyncio.to_thread(query.run)
            assert query.values() == sorted([*range(10), *range(21, 30, 2)]), "partition 0 waits for the open one"
            await producer.commit_transaction()

    asyncio.run(with_one_open())
    query.run()
    assert query.values() == sorted([*range(10), *range(20, 30), 100])


def test_new_partitions_and_topics_are_read_from_their_beginning(topics: SparkTopics, tmp_path: Path) -> None:
    topics.create("t-1")
    topics.put("t-1", range(10))
    query = MemoryQuery(topics.stream(subscribePattern="t-.*", startingOffsets="earliest"), tmp_path)
    running = query.start()
    try:
        until(running, lambda: len(query.values()) == 10)
        topics.create("t-2")
        topics.put("t-2", range(10, 30))
        until(running, lambda: len(query.values()) == 30)
    finally:
        running.stop()
    assert query.values() == list(range(30))


def test_missing_records_fail_a_stream_unless_loss_is_allowed(topics: SparkTopics, tmp_path: Path) -> None:
    topics.create("t")
    topics.put("t", range(1000), max_batch_size=300)
    MemoryQuery(topics.stream(subscribe="t", startingOffsets="earliest"), tmp_path).run()
    topics.put("t", range(1000, 3000), max_batch_size=300)
    topics.do(lambda admin: admin.delete_records({TopicPartition("t", 0): RecordsToDelete(1000)}))
    strict = MemoryQuery(topics.stream(subscribe="t"), tmp_path)
    with pytest.raises(Exception, match=r"500 is gone(.|\n)*failOnDataLoss to false"):
        strict.run()
    lenient = MemoryQuery(topics.stream(subscribe="t", failOnDataLoss="false"), tmp_path)
    lenient.run()
    assert lenient.values() == sorted([*range(2000, 3000, 2), *range(1001, 3000, 2)])


def test_a_stream_continues_after_a_broker_outage(
    topics: SparkTopics, semel_broker: EphemeralBroker, tmp_path: Path
) -> None:
    topics.create("t")
    topics.put("t", range(10))
    query = MemoryQuery(topics.stream(subscribe="t", startingOffsets="earliest"), tmp_path)
    running = query.start()
    try:
        until(running, lambda: len(query.values()) == 10)
        semel_broker.kill()
        semel_broker.start()
        topics.put("t", range(10, 30))
        until(running, lambda: len(query.values()) == 30)
    finally:
        running.stop()
    assert query.values() == list(range(30))
