"""The sink on brokers that are not semel's (`pytest --against`): at least once works, exactly once is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline.queries import QueryCase, committed
from pyspark.sql import SparkSession
from semel_broker.testing.in_process import EphemeralBroker
from support.against import OutsideBroker

pytestmark = pytest.mark.timeout(300)
AT_LEAST_ONCE = {"semel.delivery": "at-least-once"}


@pytest.fixture
def case(semel_broker: EphemeralBroker | OutsideBroker, tmp_path: Path) -> QueryCase:
    if isinstance(semel_broker, EphemeralBroker):
        pytest.skip("for --against alone: this broker has transaction groups")
    semel_broker.create_topic("out", 3)
    return QueryCase(tmp_path / "out", semel_broker.bootstrap_servers)


def test_a_stream_is_written_at_least_once(spark: SparkSession, case: QueryCase) -> None:
    for number in range(2):
        case.add_file(number)
        case.start(case.rows(spark), **AT_LEAST_ONCE).awaitTermination()
        case.check(number + 1)


def test_a_batch_is_written_at_least_once(spark: SparkSession, case: QueryCase) -> None:
    rows = spark.createDataFrame([(b"k", b"v")], "key BINARY, value BINARY")
    given = {"kafka.bootstrap.servers": case.address, "topic": case.name, **AT_LEAST_ONCE}
    rows.write.format("semel").mode("append").options(**given).save()
    (one,) = committed(case.address, case.name)
    assert (one.key, one.value) == (b"k", b"v")


def test_exactly_once_is_refused_with_the_setting_that_works(spark: SparkSession, case: QueryCase) -> None:
    case.add_file(0)
    reason = r"transaction groups need semel's own API(.|\n)*Apache Kafka(.|\n)*semel\.delivery to at-least-once"
    with pytest.raises(Exception, match=reason):
        case.start(case.rows(spark)).awaitTermination()
    assert committed(case.address, case.name) == []
