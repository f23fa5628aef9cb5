"""The sink on Spark: the records of the topics, row by row."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline.fault_points import FaultPointSource, arm
from pipeline.queries import QueryCase, committed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf, window
from pyspark_semel.sink import foreach
from pyspark_semel.sink.foreach import write_batch
from semel import Admin
from semel._admin.types import TransactionGroupDescription
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.hashes import partition_for_key

SEMEL_ONLY = pytest.mark.semel_only("the sink is exactly once by transaction groups (BeginTransactionGroup, API 20001)")
pytestmark = [SEMEL_ONLY, pytest.mark.semel(settings={"num.partitions": 3}), pytest.mark.timeout(300)]


@pytest.fixture
def case(semel_broker: EphemeralBroker, tmp_path: Path) -> QueryCase:
    return QueryCase(tmp_path / "out", semel_broker.bootstrap_servers)


def described(case: QueryCase) -> TransactionGroupDescription:
    async def ask() -> TransactionGroupDescription:
        async with Admin(bootstrap_servers=case.address) as admin:
            (group,) = await admin.describe_transaction_groups([case.name])
            return group

    return asyncio.run(ask())


def last_token(case: QueryCase) -> str | None:
    return described(case).decided_token


def batch_options(case: QueryCase, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": case.address, **more}


# Streams


@pytest.mark.smoke
def test_a_stream_continues_from_its_checkpoint(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    case.start(case.rows(spark)).awaitTermination()
    case.check(1)
    case.add_file(1)
    case.add_file(2, rows=1)
    query = case.start(case.rows(spark))
    query.awaitTermination()
    assert last_token(case) == f"{query.id}:2"
    records = committed(case.address, case.name)
    assert Counter(record.value for record in records if record.key == b"k0" and record.partition == 0) == Counter(
        record.value for record in records if record.key == b"k0" and partition_for_key(b"k0", 3) == 0
    )
    assert all(record.partition == partition_for_key(record.key or b"", 3) for record in records)
    assert len(records) == 81


def test_a_batch_without_rows_commits_its_token(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    case.add_file(1)
    query = case.start(case.rows(spark).filter("value LIKE '0:%'"))
    query.awaitTermination()
    case.check(1)
    assert last_token(case) == f"{query.id}:1"


def test_at_least_once_needs_no_sink_id(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    options = {"semel.delivery": "at-least-once"}
    case.start(case.rows(spark), **options).awaitTermination()
    case.check(1)
    assert [record.offset for record in committed(case.address, case.name) if record.partition == 0][:1] == [0]


def test_an_invalid_column_fails_the_query_with_the_reason(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    query = case.start(case.rows(spark).selectExpr("key", "named_struct('a', value) AS value"))
    with pytest.raises(Exception, match=r"column 'value' is STRUCT<A:STRING>, and a topic takes STRING or BINARY"):
        query.awaitTermination()


def test_a_query_without_its_checkpoint_is_refused_unless_it_replaces(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    first = case.start(case.rows(spark))
    first.awaitTermination()
    again = {"checkpointLocation": str(case.folder / "another")}
    query = case.start(case.rows(spark), **again)
    with pytest.raises(Exception, match=rf"belongs to query {first.id} .*semel\.sink\.replaces={first.id}"):
        query.awaitTermination()
    case.check(1)
    case.start(case.rows(spark), **again, **{"semel.sink.replaces": str(first.id)}).awaitTermination()
    assert len(committed(case.address, case.name)) == 80


def test_a_checkpoint_unknown_to_the_sink_is_refused(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    case.start(case.rows(spark)).awaitTermination()
    case.add_file(1)
    query = case.start(case.rows(spark), **{"semel.sink.id": "another"})
    with pytest.raises(Exception, match=r"'another' remembers no batch, and query .* goes on with batch 1"):
        query.awaitTermination()
    case.check(1)
    case.start(case.rows(spark), **{"semel.sink.id": "another", "semel.sink.replaces": "nothing"}).awaitTermination()
    case.check(2)


def test_late_rows_are_dropped_and_windows_appear_once(spark: SparkSession, case: QueryCase) -> None:
    """Append mode: a window appears when the watermark has passed it; a late row changes nothing."""
    minutes = [[0, 1, 9], [25], [27], [2, 26], [55]]  # 2 is late: two batches ago the watermark came to 25 - 10
    for number, each in enumerate(minutes):
        path = case.folder / "in" / f"{number}.json"
        path.write_text("".join(f'{{"m": {minute}}}\n' for minute in each))
        os.utime(path, (number, number))  # in this order
    files = spark.readStream.schema("m int").option("maxFilesPerTrigger", 1).json(str(case.folder / "in"))
    rows = files.selectExpr("timestamp_seconds(60 * m) AS at").withWatermark("at", "10 minutes")
    counted = rows.groupBy(window("at", "10 minutes").alias("during")).count()
    counted = counted.selectExpr(
        "CAST(unix_timestamp(during.start) DIV 60 AS STRING) AS key", "CAST(count AS STRING) AS value"
    )
    case.start(counted).awaitTermination()
    assert sorted((record.key, record.value) for record in committed(case.address, case.name)) == [
        (b"0", b"3"),
        (b"20", b"3"),
    ]


# Batches


def test_a_batch_writes_all_columns(spark: SparkSession, case: QueryCase) -> None:
    rows = spark.createDataFrame(
        [
            (b"k1", b"v1", "t1", 2, [("h", b"1"), ("n", None)], 1.5),
            (None, None, "t2", None, None, 2.5),
            (b"", b"v3", "t2", None, [], 3.5),
        ],
        "key BINARY, value BINARY, topic STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
        "other DOUBLE",
    )
    rows.write.format("semel").mode("append").options(**batch_options(case)).save()
    (one,) = committed(case.address, "t1")
    assert (one.key, one.value, one.partition, list(one.headers)) == (b"k1", b"v1", 2, [("h", b"1"), ("n", None)])
    two = {(record.key, record.value, tuple(record.headers)) for record in committed(case.address, "t2")}
    assert two == {(None, None, ()), (b"", b"v3", ())}


def names_in_lists(case: QueryCase) -> list[str]:
    """Return the transaction groups and the transactional ids that the brokers list."""

    async def ask() -> list[str]:
        async with Admin(bootstrap_servers=case.address) as admin:
            groups = await admin.describe_transaction_groups()
            listed = await admin.list_transactions()
            return [each.name for each in groups] + [each.transactional_id for each in listed]

    return asyncio.run(ask())


def test_batch_writes_leave_no_transaction_groups_and_no_transactional_ids(
    spark: SparkSession, case: QueryCase
) -> None:
    rows = spark.range(0, 30, 1, 3).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(10):
        rows.write.format("semel").mode("append").options(**batch_options(case, topic="t")).save()
    assert Counter(record.value for record in committed(case.address, "t")) == {b"%d" % n: 10 for n in range(30)}
    assert names_in_lists(case) == []


def test_a_named_batch_write_keeps_its_group(spark: SparkSession, case: QueryCase) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("semel").mode("append").options(
        **batch_options(case, topic="t", **{"semel.sink.id": "nightly"})
    ).save()
    assert "nightly" in names_in_lists(case)


@pytest.mark.parametrize("mode", [None, "error", "ignore", "overwrite"])
def test_a_batch_write_needs_mode_append(spark: SparkSession, case: QueryCase, mode: str | None) -> None:
    """Spark itself refuses its default mode for a data source in Python."""
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("semel").options(**batch_options(case, topic="t"))
    with pytest.raises(Exception, match=r"(?i)append"):
        (writer if mode is None else writer.mode(mode)).save()


def test_a_failed_batch_leaves_no_visible_row(spark: SparkSession, case: QueryCase) -> None:
    @udf("string")  # type: ignore[untyped-decorator,unused-ignore]
    def fails_late(number: int) -> str:
        if number == 39_999:
            raise RuntimeError("as the test has asked for")
        return "v"

    rows = spark.range(0, 40_000, 1, 2).select(fails_late(col("id")).alias("value"))
    with pytest.raises(Exception, match="as the test has asked for"):
        rows.write.format("semel").mode("append").options(**batch_options(case, topic="t")).save()
    assert committed(case.address, "t") == []
    assert names_in_lists(case) == []
    rows.limit(10).write.format("semel").mode("append").options(**batch_options(case, topic="t")).save()
    assert len(committed(case.address, "t")) == 10


# foreachBatch


@pytest.fixture
def names(case: QueryCase) -> dict[str, Any]:
    foreach._written.clear()
    return {"kafka.bootstrap.servers": case.address, "topic": case.name, "semel.sink.id": "each"}


def run_each(spark: SparkSession, case: QueryCase, each: Any) -> None:
    query = case.rows(spark).writeStream.foreachBatch(each).trigger(availableNow=True)
    query.option("checkpointLocation", str(case.folder / "checkpoint")).start().awaitTermination()


def test_foreach_batch_writes_a_repeated_batch_once(
    spark: SparkSession, case: QueryCase, names: dict[str, str]
) -> None:
    came: list[int] = []

    def each(rows: DataFrame, batch_id: int) -> None:
        came.append(batch_id)
        write_batch(rows, batch_id, names)
        if came.count(1) == 1 and batch_id == 1:
            raise RuntimeError("behind the write")

    for number in range(3):
        case.add_file(number)
    with pytest.raises(Exception, match="behind the write"):
        run_each(spark, case, each)
    run_each(spark, case, each)
    assert came == [0, 1, 1, 2]
    case.check(3)


def test_ten_thousand_state_keys_give_ten_thousand_records(
    spark: SparkSession, case: QueryCase, names: dict[str, str]
) -> None:
    """Output mode update: Spark does not allow it for a Python data source, so foreachBatch is used."""
    many = case.rows(spark).selectExpr("explode(sequence(0, 9999)) AS number").groupBy("number").count()
    rows = many.selectExpr("CAST(number AS STRING) AS key", "CAST(count AS STRING) AS value")
    for number in range(2):
        case.add_file(number, rows=1)
    query = rows.writeStream.foreachBatch(lambda batch, batch_id: write_batch(batch, batch_id, names))
    query = query.outputMode("update").trigger(availableNow=True)
    query.option("checkpointLocation", str(case.folder / "checkpoint")).start().awaitTermination()
    found = Counter((int(record.key or b""), record.value) for record in committed(case.address, case.name))
    assert found == Counter((number, b"%d" % count) for number in range(10_000) for count in (1, 2))


def test_a_second_write_of_a_batch_to_one_sink_is_an_error(
    spark: SparkSession, case: QueryCase, names: dict[str, str]
) -> None:
    def each(rows: DataFrame, batch_id: int) -> None:
        write_batch(rows, batch_id, names)
        write_batch(rows, batch_id, names)

    case.add_file(0)
    with pytest.raises(Exception, match="was written to sink 'each' a moment ago"):
        run_each(spark, case, each)
    case.check(1)


def test_outside_foreach_batch_a_query_id_is_required(
    spark: SparkSession, case: QueryCase, names: dict[str, str]
) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(ValueError, match="give query_id"):
        write_batch(rows, 0, names)
    for _ in range(2):
        write_batch(rows, 0, names, query_id="nightly")
    assert len(committed(case.address, case.name)) == 3


# Repeated batches


@pytest.fixture
def faulty_spark(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(FaultPointSource)
    return spark


def test_the_rows_of_a_failed_batch_are_aborted_at_once(faulty_spark: SparkSession, case: QueryCase) -> None:
    """Spark reports no attempt to abort() if the only task has failed; the driver knows its step."""
    case.add_file(0)
    arm(case.points, "in-write", 0, "raise")
    with pytest.raises(Exception, match="injected fault at in-write"):
        case.start(case.rows(faulty_spark), with_faults=True).awaitTermination()
    assert (case.points / "aborted@0").exists()
    group = described(case)
    assert (group.state, [member for member in group.members if member.is_open]) == ("Aborted", [])
    case.start(case.rows(faulty_spark), with_faults=True).awaitTermination()
    case.check(1)


def test_a_batch_repeated_with_other_settings_is_written_once(faulty_spark: SparkSession, case: QueryCase) -> None:
    """A repeated batch may have another number of tasks, and other rows in each of them."""
    settings = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")
    before = [faulty_spark.conf.get(name) for name in settings]
    try:
        for number, point in enumerate(("before-decide", "after-decide", "after-prepare")):
            case.add_file(number)
            arm(case.points, point, number, "raise")
            for adaptive, partitions in (("true", "7"), ("false", "3")):
                for name, value in zip(settings, (adaptive, partitions), strict=True):
                    faulty_spark.conf.set(name, value)
                query = case.start(case.rows(faulty_spark, partitions=None), with_faults=True)
                if adaptive == "true":
                    with pytest.raises(Exception, match=f"injected fault at {point}"):
                        query.awaitTermination()
                else:
                    query.awaitTermination()
            case.check(number + 1)
    finally:
        for name, value in zip(settings, before, strict=True):
            faulty_spark.conf.set(name, value)


def test_at_least_once_writes_a_repeated_batch_twice(faulty_spark: SparkSession, case: QueryCase) -> None:
    """The tests of exactly once would detect these duplicates."""
    case.add_file(0)
    arm(case.points, "after-decide", 0, "raise")
    options = {"semel.delivery": "at-least-once"}
    with pytest.raises(Exception, match="injected fault at after-decide"):
        case.start(case.rows(faulty_spark), with_faults=True, **options).awaitTermination()
    case.start(case.rows(faulty_spark), with_faults=True, **options).awaitTermination()
    assert set(Counter(record.value for record in committed(case.address, case.name)).values()) == {2}


def test_a_stream_continues_after_a_restart_of_the_broker(
    spark: SparkSession, case: QueryCase, semel_broker: EphemeralBroker
) -> None:
    for number in range(2):
        case.add_file(number)
        case.start(case.rows(spark)).awaitTermination()
        case.check(number + 1)
        semel_broker.restart()
