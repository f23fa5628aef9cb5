"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs on the wire."""

from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.config.edits import Edit, edited
from semel_broker.config.loading import BROKER_SETTINGS
from semel_broker.config.settings import ConfigType
from semel_broker.config.topic_configs import TOPIC_SETTINGS
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from semel_protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from semel_protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    wire: Wire, kind: int, name: str, keys: list[str] | None = None, synonyms: bool = False
) -> DescribeConfigsResponseResult:
    resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = await wire.call(DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms))
    result: DescribeConfigsResponseResult = response.results[0]
    return result


async def value(wire: Wire, kind: int, name: str, key: str) -> DescribeConfigsResponseConfig:
    (row,) = (await describe(wire, kind, name, [key], synonyms=True)).configs
    return row


async def alter(wire: Wire, kind: int, name: str, *edits: tuple[str, int, str | None], dry: bool = False) -> Any:
    rows = [IncrementalAlterConfigsRequestConfig(name=n, config_operation=op, value=v) for n, op, v in edits]
    resource = IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=rows)
    response = await wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry))
    return response.responses[0]


# --- describing ---


async def test_a_topic_has_every_topic_setting_with_its_source(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", retention_ms="5")
    rows = {row.name: row for row in (await describe(wire, TOPIC, "t")).configs}
    assert list(rows) == list(TOPIC_SETTINGS)
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("5", 1)
    assert (rows["cleanup.policy"].value, rows["cleanup.policy"].config_source) == ("delete", 5)
    assert not any(row.read_only or row.is_sensitive for row in rows.values())


@pytest.mark.proves("secrets-shown")
async def test_secrets_of_a_broker_are_described_without_their_values(start_broker: StartBroker) -> None:
    secrets = [name for name, setting in BROKER_SETTINGS.items() if setting.kind is ConfigType.PASSWORD]
    assert {"ssl.key.password", "ssl.keystore.key", "etcd.password"} <= set(secrets)
    broker = await start_broker(**{name.replace(".", "_"): "hush" for name in secrets if not name.startswith("etcd")})
    wire = await broker.wire()
    found = await describe(wire, BROKER, "0", synonyms=True)
    rows = {row.name: row for row in found.configs if row.name in secrets}
    assert set(rows) == set(secrets)
    assert all(row.is_sensitive and row.value is None for row in rows.values())
    assert all(each.value is None for row in rows.values() for each in row.synonyms)
    assert "hush" not in str(found)


async def test_keys_filter_the_settings_and_unknown_keys_are_ignored(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    result = await describe(wire, TOPIC, "t", ["segment.bytes", "nonsense"])
    assert [row.name for row in result.configs] == ["segment.bytes"]
    assert len((await describe(wire, TOPIC, "t", [])).configs) == len(TOPIC_SETTINGS)


async def test_version_0_has_only_whether_a_value_is_the_default(broker: Harness, wire: Wire) -> None:
    """Version 0 is advertised, for old clients (sarama with Version 1.0.0)."""
    await wire.create_topic("t", retention_ms="5")
    resource = DescribeConfigsRequestResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms", "segment.bytes"]
    )
    response = await wire.call(DescribeConfigsRequest(resources=[resource]), version=0)
    told = {row.name: row.is_default for row in response.results[0].configs}
    assert told == {"retention.ms": False, "segment.bytes": True}


async def test_synonyms_list_every_level_in_order(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", retention_ms="5")
    await alter(wire, BROKER, "0", ("log.retention.ms", SET, "7"))
    row = await value(wire, TOPIC, "t", "retention.ms")
    assert [(s.name, s.value, s.source) for s in row.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "7", 2),
        ("log.retention.hours", "168", 5),
    ]


async def test_a_broker_describes_its_start_settings(broker: Harness, wire: Wire) -> None:
    rows = {row.name: row for row in (await describe(wire, BROKER, "0")).configs}
    assert (rows["durability"].value, rows["durability"].config_source, rows["durability"].read_only) == ("os", 4, True)
    assert (rows["num.partitions"].value, rows["num.partitions"].read_only) == ("1", False)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "0", ErrorCode.INVALID_REQUEST),
        (127, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_unknown_resources_are_refused_by_all_three_requests(
    broker: Harness, wire: Wire, kind: int, name: str, code: ErrorCode
) -> None:
    for row in (
        await describe(wire, kind, name),
        await alter(wire, kind, name, ("retention.ms", SET, "5")),
        await replace(wire, kind, name, {"retention.ms": "5"}),
    ):
        assert (row.error_code, row.resource_type, row.resource_name) == (code, kind, name)
        assert row.error_message


async def test_kip569_types_and_documentation_when_asked_for(broker: Harness, wire: Wire) -> None:
    resource = DescribeConfigsRequestResource(
        resource_type=BROKER, resource_name="0", configuration_keys=["log.retention.ms"]
    )
    for version in (3, 4):
        for wanted in (True, False):
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=wanted)
            (row,) = (await wire.call(request, version)).results[0].configs
            assert row.config_type == 5
            assert (row.documentation is not None) is wanted
            assert "Unit: ms." in (row.documentation or "Unit: ms.")


async def test_missing_values_are_described_as_by_kafka(broker: Harness, wire: Wire) -> None:
    """As in the answers of Kafka 4.1.1."""
    await wire.create_topic("t")
    for kind, name, key, told in [
        (TOPIC, "t", "retention.ms", ("604800000", 5, [])),
        (TOPIC, "t", "segment.ms", ("604800000", 5, [])),
        (TOPIC, "t", "flush.ms", ("9223372036854775807", 5, [])),
        (TOPIC, "t", "flush.messages", ("9223372036854775807", 5, ["log.flush.interval.messages"])),
        (TOPIC, "t", "preallocate", ("false", 5, ["log.preallocate"])),
        (TOPIC, "t", "remote.storage.enable", ("false", 5, [])),
        (TOPIC, "t", "local.retention.ms", ("-2", 5, ["log.local.retention.ms"])),
        (TOPIC, "t", "compression.zstd.level", ("3", 5, ["compression.zstd.level"])),
        (BROKER, "0", "log.retention.ms", (None, 5, [])),
        (BROKER, "0", "log.retention.minutes", (None, 5, [])),
        (BROKER, "0", "log.retention.hours", ("168", 5, ["log.retention.hours"])),
        (BROKER, "0", "broker.rack", (None, 5, [])),
    ]:
        row = await value(wire, kind, name, key)
        assert (row.value, row.config_source, [synonym.name for synonym in row.synonyms]) == told, key


async def test_broker_without_name_and_success_are_answered_as_by_kafka(broker: Harness, wire: Wire) -> None:
    for name in ("", "0"):
        result = await describe(wire, BROKER, name)
        assert (result.error_code, result.error_message) == (0, "")


@pytest.mark.parametrize("setting", ["unclean.leader.election.enable", "remote.storage.enable"])
async def test_a_setting_with_one_allowed_value_refuses_others_with_the_reason(
    broker: Harness, wire: Wire, setting: str
) -> None:
    await wire.create_topic("t")
    assert (await alter(wire, TOPIC, "t", (setting, SET, "False"))).error_code == 0
    assert (await value(wire, TOPIC, "t", setting)).config_source == 1
    row = await alter(wire, TOPIC, "t", (setting, SET, "true"))
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert row.error_message.startswith(f"{setting} = 'true': must be false. ")


NO_EFFECT = {
    "file.delete.delay.ms": "60000",
    "segment.jitter.ms": "5",
    "preallocate": "true",
    "local.retention.ms": "-1",
    "local.retention.bytes": "5",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
}


async def test_settings_whose_values_can_do_no_harm_are_taken_and_said_to_have_no_effect(
    broker: Harness, wire: Wire
) -> None:
    """As Kafka takes them without remote storage; copies of a topic's settings hold Kafka's defaults."""
    await wire.create_topic("t", **{name.replace(".", "_"): text for name, text in NO_EFFECT.items()})
    assert (await wire.produce("t", batch(b"x"))).error_code == 0
    resource = DescribeConfigsRequestResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=True)
    rows = {row.name: row for row in (await wire.call(request)).results[0].configs}
    assert {name: rows[name].value for name in NO_EFFECT} == NO_EFFECT
    assert [n for n, row in rows.items() if row.documentation.startswith("Has no effect. ")] == sorted(NO_EFFECT)
    row = await alter(wire, TOPIC, "t", ("file.delete.delay.ms", SET, "-1"))
    assert (row.error_code, "from 0" in row.error_message) == (ErrorCode.INVALID_CONFIG, True)


KAFKA_4_3 = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""All that Kafka 4.3.1 describes of a topic."""


async def test_a_topic_can_be_created_with_all_described_settings_of_another(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("of-kafka", **{name.replace(".", "_"): text for name, text in KAFKA_4_3.items()})
    described = (await describe(wire, TOPIC, "of-kafka")).configs
    assert {row.name: row.value for row in described} == KAFKA_4_3
    await wire.create_topic("of-semel")
    described = (await describe(wire, TOPIC, "of-semel")).configs
    await wire.create_topic("copy", **{row.name.replace(".", "_"): row.value for row in described})
    again = (await describe(wire, TOPIC, "copy")).configs
    assert [(row.name, row.value) for row in again] == [(row.name, row.value) for row in described]


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("sasl.kerberos.min.time.before.relogin", "58000"),
        ("sasl.kerberos.kinit.cmd", "/bin/kinit"),
        ("sasl.kerberos.ticket.renew.jitter", "0.1"),
        ("sasl.kerberos.ticket.renew.window.factor", "0.9"),
        ("sasl.login.refresh.buffer.seconds", "100"),
        ("sasl.login.refresh.min.period.seconds", "30"),
        ("sasl.login.refresh.window.factor", "0.7"),
        ("sasl.login.refresh.window.jitter", "0.1"),
        ("log.preallocate", "true"),
        ("log.segment.delete.delay.ms", "1"),
        ("log.roll.jitter.ms", "1"),
        ("log.local.retention.ms", "5"),
    ],
)
@pytest.mark.parametrize("name", ["", "0"])
async def test_settings_of_brokers_without_effect_are_taken_as_by_kafka(
    broker: Harness, wire: Wire, name: str, setting: str, text: str
) -> None:
    """Kafka 4.3.1 takes each of them while it runs; librdkafka's test 0081 alters the first."""
    assert (await alter(wire, BROKER, name, (setting, SET, text))).error_code == 0
    row = await value(wire, BROKER, name, setting)
    assert (row.value, row.read_only) == (text, False)
    assert (await alter(wire, BROKER, name, (setting, DELETE, None))).error_code == 0


# --- IncrementalAlterConfigs ---


async def test_set_and_delete_are_in_force_at_once_and_survive_a_restart(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", segment_bytes="2000")
    assert (await wire.produce("t", batch(b"x" * 300))).error_code == 0
    assert (
        await alter(wire, TOPIC, "t", ("max.message.bytes", SET, "200"), ("segment.bytes", DELETE, None))
    ).error_code == 0
    assert (await wire.produce("t", batch(b"x" * 300))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await broker.restart()
    wire = await broker.wire()
    assert (await value(wire, TOPIC, "t", "max.message.bytes")).value == "200"
    assert (await value(wire, TOPIC, "t", "segment.bytes")).config_source == 5
    assert (await wire.produce("t", batch(b"x" * 300))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_lists_grow_and_shrink_from_the_value_in_force(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    await alter(wire, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert (await value(wire, TOPIC, "t", "cleanup.policy")).value == "delete,compact"
    await alter(wire, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert (await value(wire, TOPIC, "t", "cleanup.policy")).value == "delete,compact"
    await alter(wire, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert (await value(wire, TOPIC, "t", "cleanup.policy")).value == "compact"
    assert (await alter(wire, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"))).error_code == 0
    assert (await value(wire, TOPIC, "t", "cleanup.policy")).value == "", "as in Kafka: nothing is removed by itself"


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.mss", SET, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.mss", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 4, "5")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "5"), ("retention.ms", SET, "6")], ErrorCode.INVALID_REQUEST),
        ([("segment.bytes", SET, "2000"), ("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_refused_edit_leaves_the_topic_as_it_was(
    broker: Harness, wire: Wire, edits: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    await wire.create_topic("t", retention_ms="9")
    row = await alter(wire, TOPIC, "t", *edits)
    assert row.error_code == code
    assert edits[-1][0] in row.error_message
    assert (await value(wire, TOPIC, "t", "retention.ms")).value == "9"
    assert (await value(wire, TOPIC, "t", "segment.bytes")).config_source == 5


async def test_validate_only_alters_nothing(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    assert (await alter(wire, TOPIC, "t", ("retention.ms", SET, "5"), dry=True)).error_code == 0
    assert (await alter(wire, BROKER, "", ("num.partitions", SET, "5"), dry=True)).error_code == 0
    assert (await value(wire, TOPIC, "t", "retention.ms")).config_source == 5
    assert (await value(wire, BROKER, "0", "num.partitions")).value == "1"


async def test_brokers_are_altered_for_one_and_for_all(broker: Harness, wire: Wire) -> None:
    assert (await alter(wire, BROKER, "", ("num.partitions", SET, "3"))).error_code == 0
    assert (await alter(wire, BROKER, "0", ("num.partitions", SET, "4"))).error_code == 0
    for _ in range(2):
        row = await value(wire, BROKER, "0", "num.partitions")
        assert (row.value, [(s.value, s.source) for s in row.synonyms]) == ("4", [("4", 2), ("3", 3), ("1", 5)])
        assert [(r.name, r.value) for r in (await describe(wire, BROKER, "")).configs] == [("num.partitions", "3")]
        await broker.restart()
        wire = await broker.wire()
    await alter(wire, BROKER, "0", ("num.partitions", DELETE, None))
    assert (await value(wire, BROKER, "0", "num.partitions")).value == "3"
    await wire.create_topic("t", partitions=-1)
    assert (await wire.produce("t", batch(b"x"), partition=2)).error_code == 0


async def test_open_logs_follow_a_brokers_dynamic_setting(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(b"x" * 300))).error_code == 0
    await alter(wire, BROKER, "0", ("message.max.bytes", SET, "200"))
    assert (await wire.produce("t", batch(b"x" * 300))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await alter(wire, BROKER, "0", ("message.max.bytes", DELETE, None))
    assert (await wire.produce("t", batch(b"x" * 300))).error_code == 0


@pytest.mark.parametrize("key", ["log.dir", "durability", "node.id", "port"])
async def test_static_broker_settings_are_refused_with_a_message(broker: Harness, wire: Wire, key: str) -> None:
    row = await alter(wire, BROKER, "0", (key, SET, "1"))
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert "restart" in row.error_message


# --- AlterConfigs ---


async def replace(wire: Wire, kind: int, name: str, configs: dict[str, str | None]) -> Any:
    rows = [AlterConfigsRequestConfig(name=key, value=text) for key, text in configs.items()]
    resource = AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=rows)
    response = await wire.call(AlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return response.responses[0]


async def test_kip133_settings_not_named_follow_the_default_again(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", retention_ms="5", segment_bytes="2000")
    assert (await replace(wire, TOPIC, "t", {"retention.ms": "6"})).error_code == 0
    assert (await value(wire, TOPIC, "t", "retention.ms")).value == "6"
    assert (await value(wire, TOPIC, "t", "segment.bytes")).config_source == 5
    assert (await replace(wire, BROKER, "", {"num.partitions": "2"})).error_code == 0
    assert (await replace(wire, BROKER, "", {})).error_code == 0
    assert (await value(wire, BROKER, "0", "num.partitions")).value == "1"


# --- the pure part ---

NAMES = ["retention.ms", "cleanup.policy", "nonsense"]
VALUES = st.sampled_from(["", "delete", "compact", "delete,compact", "5", None])


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["delete", "5", "compact"])),
    st.lists(st.builds(Edit, st.sampled_from(NAMES), st.integers(-1, 5), VALUES), max_size=4),
)
def test_edits_change_only_the_named_settings_and_not_their_input(given_now: dict[str, str], edits: list[Edit]) -> None:
    before = dict(given_now)
    try:
        after = edited(given_now, edits, declared=TOPIC_SETTINGS, in_force=given_now.get)
    except KafkaError as error:
        assert error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)  # noqa: PT017
    else:
        named = [edit.name for edit in edits]
        assert {k: v for k, v in after.items() if k not in named} == {k: v for k, v in before.items() if k not in named}
        assert all(edit.name not in after for edit in edits if edit.operation == DELETE)
    assert given_now == before


# --- replication throttles ---

THROTTLED = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@pytest.mark.parametrize("name", THROTTLED)
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("*", "*"),
        (" * ", "*"),
        ("", ""),
        ("0:1", "0:1"),
        (" 0:1 , 01:2 ", "0:1,1:2"),
        ("0:1,", "0:1"),
        ("99999999999:77", "99999999999:77"),
        (",".join(f"{index}:1" for index in range(1000)), ",".join(f"{index}:1" for index in range(1000))),
    ],
)
async def test_throttled_replicas_are_all_or_pairs_of_partition_and_broker(
    wire: Wire, name: str, given: str, stored: str
) -> None:
    await wire.create_topic("t")
    assert (await alter(wire, TOPIC, "t", (name, SET, given))).error_code == 0
    assert (await value(wire, TOPIC, "t", name)).value == stored


@pytest.mark.parametrize("name", THROTTLED)
@pytest.mark.parametrize(
    "given", ["none", "0:1,*", "*,*", "a:b", "0:1:2", "0", "-1:1", "0:1;1:2", "\u0661:1", "0: 1", "1" * 5000 + ":x"]
)
async def test_other_throttled_replicas_are_refused_as_kafka_does(wire: Wire, name: str, given: str) -> None:
    await wire.create_topic("t")
    answer = await alter(wire, TOPIC, "t", (name, SET, given))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "partition:broker" in answer.error_message


async def test_throttled_replicas_are_a_list_without_a_broker_default(wire: Wire) -> None:
    """kafka-reassign-partitions appends to the list and deletes it at the end."""
    await wire.create_topic("t")
    for name in THROTTLED:
        row = await value(wire, TOPIC, "t", name)
        assert (row.value, row.config_source, row.synonyms) == ("", 5, [])
        for pair in ("0:1", "1:1"):
            assert (await alter(wire, TOPIC, "t", (name, APPEND, pair))).error_code == 0
        assert (await value(wire, TOPIC, "t", name)).value == "0:1,1:1"
        assert (await alter(wire, TOPIC, "t", (name, DELETE, None))).error_code == 0
        assert (await value(wire, TOPIC, "t", name)).value == ""


async def test_throttled_rates_are_altered_while_the_broker_runs(wire: Wire) -> None:
    for name in ("leader.replication.throttled.rate", "follower.replication.throttled.rate"):
        assert (await value(wire, BROKER, "0", name)).value == str(2**63 - 1)
        for text, code in (("0", 0), ("1000", 0), ("-1", ErrorCode.INVALID_CONFIG), ("x", ErrorCode.INVALID_CONFIG)):
            assert (await alter(wire, BROKER, "0", (name, SET, text))).error_code == code
        assert (await value(wire, BROKER, "0", name)).value == "1000"
        assert (await alter(wire, BROKER, "0", (name, DELETE, None))).error_code == 0


# --- groups ---

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def test_a_group_follows_the_broker_until_it_is_given_a_setting(broker: Harness, wire: Wire) -> None:
    rows = {row.name: row for row in (await describe(wire, GROUP, "g")).configs}
    assert {name: (row.value, row.config_source) for name, row in rows.items()} == {
        INTERVAL: ("5000", 5),
        SESSION: ("45000", 5),
    }
    assert (await alter(wire, GROUP, "g", (SESSION, SET, "50000"))).error_code == 0
    row = await value(wire, GROUP, "g", SESSION)
    assert (row.value, row.config_source, row.read_only) == ("50000", 8, False)
    assert [(each.name, each.value, each.source) for each in row.synonyms] == [
        (SESSION, "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert (await value(wire, GROUP, "other", SESSION)).value == "45000"
    await broker.restart()
    wire = await broker.wire()
    assert (await value(wire, GROUP, "g", SESSION)).value == "50000"
    assert (await alter(wire, GROUP, "g", (SESSION, DELETE, None))).error_code == 0
    assert (await value(wire, GROUP, "g", SESSION)).value == "45000"


@pytest.mark.parametrize(
    ("name", "edit", "code"),
    [
        ("g", (SESSION, SET, "44999"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG),
        ("g", (INTERVAL, SET, "4999"), ErrorCode.INVALID_CONFIG),
        ("g", (INTERVAL, SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("g", (INTERVAL, APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("g", ("share.session.timeout.ms", SET, "45000"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, None), ErrorCode.INVALID_REQUEST),
        ("", (SESSION, SET, "45000"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_a_group_may_not_be_given(
    wire: Wire, name: str, edit: tuple[str, int, str | None], code: ErrorCode
) -> None:
    answer = await alter(wire, GROUP, name, edit)
    assert (answer.error_code, bool(answer.error_message)) == (code, True)


async def test_group_settings_are_validated_without_being_stored_and_replaced_as_a_whole(wire: Wire) -> None:
    assert (await alter(wire, GROUP, "g", (SESSION, SET, "50000"), dry=True)).error_code == 0
    assert (await value(wire, GROUP, "g", SESSION)).value == "45000"
    for key, text in ((SESSION, "50000"), (INTERVAL, "6000")):
        rows = [AlterConfigsRequestConfig(name=key, value=text)]
        resource = AlterConfigsRequestResource(resource_type=GROUP, resource_name="g", configs=rows)
        answer = await wire.call(AlterConfigsRequest(resources=[resource], validate_only=False))
        assert answer.responses[0].error_code == 0
    assert (await value(wire, GROUP, "g", SESSION)).value == "45000"
    assert (await value(wire, GROUP, "g", INTERVAL)).value == "6000"
