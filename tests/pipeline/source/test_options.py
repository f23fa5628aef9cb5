"""Options of the source: those of Spark's own Kafka source are accepted; an error gives the value to write."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_semel.options import OptionError
from pyspark_semel.source import source
from pyspark_semel.source.offsets import Splitting
from pyspark_semel.source.options import Where, batch_options, source_options, stream_options
from semel.structs import TopicPartition

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="hush";'
GIVEN = {"kafka.bootstrap.servers": "h:1,i:2", "subscribe": "a, b,a"}


def given(**more: str) -> dict[str, str]:
    return GIVEN | {name.replace("_", "."): value for name, value in more.items()}


def test_defaults_are_those_of_sparks_kafka_source_except_read_committed() -> None:
    options = source_options(GIVEN)
    assert options.topics.names == ("a", "b")
    assert options.client.values["bootstrap_servers"] == "h:1,i:2"
    assert options.client.values["isolation_level"] == "read_committed"
    assert (options.fail_on_data_loss, options.headers, options.offsets_max) == (True, False, None)
    assert options.start(Where.EARLIEST).where is Where.EARLIEST
    assert options.end.where is Where.LATEST
    assert options.splitting == Splitting()


def test_a_wrong_address_is_reported_after_15_seconds_unless_an_option_says_otherwise() -> None:
    name = "bootstrap_timeout_ms"
    assert source_options(GIVEN).client.values[name] == 15_000
    assert source_options(GIVEN | {"kafka.bootstrap.timeout.ms": "90000"}).client.values[name] == 90_000


def test_option_names_ignore_case() -> None:
    """Spark passes option names in lower case."""
    options = source_options(CaseInsensitiveDict(given(includeHeaders="TRUE", maxOffsetsPerTrigger="17")))
    assert (options.headers, options.offsets_max) == (True, 17)


def test_options_survive_pickling() -> None:
    options = source_options(given(kafka_client_id="me", startingOffsets="earliest"))
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "value", "setting", "wanted"),
    [
        ("kafka.isolation.level", "read_uncommitted", "isolation_level", "read_uncommitted"),
        ("kafka.request.timeout.ms", "5000", "request_timeout_ms", 5000),
        ("kafka.max.partition.fetch.bytes", "1000", "max_partition_fetch_bytes", 1000),
        ("kafka.check.crcs", "false", "check_crcs", False),
        ("kafka.client.rack", "r1", "client_rack", "r1"),
        ("kafkaConsumer.pollTimeoutMs", "1234", "default_api_timeout_ms", 1234),
    ],
)
def test_client_settings_are_passed_to_the_client(name: str, value: str, setting: str, wanted: object) -> None:
    assert source_options(GIVEN | {name: value}).client.values[setting] == wanted


@pytest.mark.parametrize("name", ["kafka.group.id", "kafka.session.timeout.ms", "groupIdPrefix", "checkpointLocation"])
def test_settings_without_effect_are_accepted(name: str) -> None:
    assert source_options(GIVEN | {name: "1"}) == source_options(GIVEN)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"subscibe": "t"}, "no option 'subscibe': did you mean subscribe?"),
        ({"topic": "t"}, "no option 'topic'; there are assign, "),
        (
            {"kafka.isolation.levle": "x"},
            "no client setting kafka.isolation.levle: did you mean kafka.isolation.level?",
        ),
        ({"kafka.isolation.level": "committed"}, "write one of read_uncommitted, read_committed"),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms='soon'"),
        ({"kafka.bootstrap.servers": "a:b"}, "write host:port"),
        ({"kafka.auto.offset.reset": "latest"}, "set startingOffsets to choose the start"),
        ({"kafka.key.deserializer": "x"}, "keys are binary"),
        ({"kafka.ssl.context": "x"}, "no client setting kafka.ssl.context"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl_mechanism='PLAIN' needs sasl_plain_username"),
        ({"kafka.security.protocol": "ssl"}, "write one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism=GSSAPI cannot be set: use PLAIN, SCRAM-SHA-256"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "an option cannot be a source of tokens"),
        ({"kafka.sasl.mechanism": "SCRAM"}, "write one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"kafka.sasl.oauth.token.provider": "x"}, "no client setting kafka.sasl.oauth.token.provider"),
        ({"kafka.sasl.jaas.config": "hush"}, "kafka.*: sasl.jaas.config: write one login module"),
        (
            {"kafka.sasl.jaas.config": JAAS.replace("scram.Scram", "plain.Plain")},
            "sasl_plain_username is given but security_protocol is 'PLAINTEXT'",
        ),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": JAAS},
            "its login module is for SCRAM-SHA-256 and SCRAM-SHA-512, and sasl.mechanism is 'PLAIN'",
        ),
        ({"kafka.ssl.truststore.location": "/ca.pem"}, "is given but not kafka.security.protocol=SSL or SASL"),
        ({"kafka.ssl.keystore.type": "JKS"}, "kafka.ssl.keystore.type='JKS' cannot be set: files are PEM"),
        ({"kafka.ssl.endpoint.identification.algorithm": ""}, "certificate is always checked"),
        ({"kafka.ssl.protocol": "SSLv3"}, "kafka.ssl.protocol='SSLv3' cannot be set"),
        ({"kafka.ssl.truststore.password": "x"}, "no client setting kafka.ssl.truststore.password"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/absent.pem"}, "No such file"),
        ({"kafka.fetch.max.wait.ms": "60000"}, "fetch_max_wait_ms=60000 must be less than"),
        ({"assign": '{"t": [0]}'}, "exactly one of assign, subscribe, subscribePattern, not 2"),
        ({"subscribe": " "}, "subscribe is empty"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0: at least 1"),
        ({"minPartitions": "many"}, "minPartitions='many': write a whole number"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': write true or false"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is not supported"),
        ({"startingOffsets": "newest"}, "write earliest, latest or"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets: -3 for a-0 is out of range"),
        ({"startingOffsetsByTimestamp": "earliest"}, "write {"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday': write a whole number"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "write one of error, latest"),
    ],
)
def test_an_invalid_option_is_an_error_with_the_value_to_write(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        source_options(GIVEN | wrong)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


def test_user_and_password_come_from_kafkas_option_and_are_not_shown() -> None:
    sasl = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
    }
    options = source_options(GIVEN | sasl)
    keywords = options.client.keywords()
    assert (keywords["sasl_plain_username"], keywords["sasl_plain_password"]) == ("alice", "hush")
    assert keywords["sasl_mechanism"] == "SCRAM-SHA-512"
    for shown in (repr(options), str(options), repr(pickle.loads(pickle.dumps(options)))):
        assert "hush" not in shown
    assert pickle.loads(pickle.dumps(options)).client.keywords() == keywords


def test_servers_and_topics_are_required() -> None:
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers is missing: write host:port"):
        source_options({"subscribe": "t"})
    with pytest.raises(OptionError, match=r"exactly one of assign, subscribe, subscribePattern$"):
        source_options({"kafka.bootstrap.servers": "h:1"})


def of_topics(**one: str) -> Any:
    return source_options({"kafka.bootstrap.servers": "h:1"} | one).topics


def test_topics_may_be_assigned_or_match_a_pattern() -> None:
    assert of_topics(assign='{"a": [0, 2], "b": [1]}').partitions == (("a", 0), ("a", 2), ("b", 1))
    assert of_topics(subscribePattern="a.*").pattern == "a.*"
    with pytest.raises(OptionError, match=r"assign='x': .*write \{\"flights\": \[0, 1\]\}"):
        of_topics(assign="x")
    with pytest.raises(OptionError, match="not a regular expression"):
        of_topics(subscribePattern="(")


def test_positions_are_offsets_or_times_and_the_general_time_has_priority() -> None:
    offsets = source_options(given(startingOffsets='{"a": {"0": 23, "1": -2}}')).starting
    assert offsets is not None
    assert offsets.where is Where.OFFSETS
    assert offsets.by_partition == {TopicPartition("a", 0): 23, TopicPartition("a", 1): -2}
    times = source_options(
        given(startingOffsets="earliest", startingOffsetsByTimestamp='{"a": {"0": 1000}}', endingTimestamp="7")
    )
    assert times.starting is not None
    assert (times.starting.where, times.starting.by_partition) == (Where.TIMES, {("a", 0): 1000})
    assert (times.end.where, times.end.time_ms) == (Where.TIMES, 7)


def test_a_batch_has_two_ends_and_a_stream_has_none() -> None:
    with pytest.raises(OptionError, match="startingOffsets: latest"):
        batch_options(given(startingOffsets="latest"))
    with pytest.raises(OptionError, match="startingOffsets: latest"):
        batch_options(given(startingOffsets='{"a": {"0": -1}}'))
    with pytest.raises(OptionError, match="endingOffsets: earliest"):
        batch_options(given(endingOffsets="earliest"))
    with pytest.raises(OptionError, match=r"endingOffsets: a streaming query has no end; use Trigger.AvailableNow"):
        stream_options(given(endingOffsets="latest"))
    assert stream_options(given(startingOffsets="latest")).start(Where.LATEST).where is Where.LATEST


def test_a_user_schema_is_refused() -> None:
    with pytest.raises(OptionError, match=r"the columns are fixed: struct<key:binary,.*leave .schema\(\) out"):
        source.batch_reader(GIVEN, StructType([StructField("value", StringType())]))
    assert source.schema(GIVEN | {"includeHeaders": "true"}).fieldNames()[-1] == "headers"
