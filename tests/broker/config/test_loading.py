"""Settings: the order of their sources, refused values, and the text of the errors."""

from collections.abc import Iterator

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._command_line.client_settings import VARIABLES
from semel.cli.main import main
from semel.cli.user.passwords import VARIABLE as USER_PASSWORD
from semel_broker.config.loading import (
    BROKER_SETTINGS,
    OF_THE_COMMANDS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    load,
)
from semel_broker.config.settings import ConfigType

# --- precedence ---


def test_defaults_are_in_force_when_nothing_is_given() -> None:
    config = load()
    assert config.num_partitions == 1
    assert config.durability == "fsync"
    assert config.value_of("num.partitions").source is ConfigSource.DEFAULT


@pytest.mark.parametrize(
    ("environment", "overrides", "expected"),
    [({}, [], 2), ({"SEMEL_NUM_PARTITIONS": "3"}, [], 3), ({"SEMEL_NUM_PARTITIONS": "3"}, ["num.partitions=4"], 4)],
)
def test_set_wins_over_environment_and_environment_over_file(
    environment: dict[str, str], overrides: list[str], expected: int
) -> None:
    config = load("num.partitions = 2", environment, overrides)
    assert config.num_partitions == expected
    assert config.value_of("num.partitions").source is ConfigSource.STATIC_BROKER


@pytest.mark.parametrize(
    "toml",
    [
        '"log.segment.bytes" = 2048',
        "log.segment.bytes = 2048",
        "[log]\nsegment.bytes = 2048",
        "[log.segment]\nbytes = 2048",
        'log.segment.bytes = "2048"',
    ],
)
def test_tables_and_dotted_keys_mean_the_same(toml: str) -> None:
    assert load(toml).log_segment_bytes == 2048


def test_lists_may_be_arrays_or_text() -> None:
    assert load('log.cleanup.policy = ["compact", "delete"]').log_cleanup_policy == ("compact", "delete")
    assert load(overrides=["log.cleanup.policy=compact, delete"]).log_cleanup_policy == ("compact", "delete")


def test_kafkas_second_names_are_understood() -> None:
    config = load(overrides=["broker.id=7", "log.dirs=/data"])
    assert (config.node_id, config.log_dir) == (7, "/data")


@pytest.mark.parametrize(
    ("given_settings", "expected"),
    [
        ([], 168 * 3_600_000),
        (["log.retention.hours=1"], 3_600_000),
        (["log.retention.hours=1", "log.retention.minutes=2"], 120_000),
        (["log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"], 3),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-1"], -1),
        (["log.retention.ms=-1"], -1),
    ],
)
def test_retention_is_taken_from_the_finest_unit_given(given_settings: list[str], expected: int) -> None:
    assert load(overrides=given_settings).retention_ms == expected


# --- refusals: each names the key, the value and what is allowed ---


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("num.partitions=0", "num.partitions = '0': must be a whole number from 1 to 2147483647"),
        ("num.partitions=two", "num.partitions = 'two': must be a whole number from 1 to 2147483647"),
        ("num.partitions=1.5", "num.partitions = '1.5': must be a whole number from 1 to 2147483647"),
        ("num.partitions=99999999999999999999", "must be a whole number from 1 to 2147483647"),
        ("num.partitions=", "num.partitions = '': must be a whole number from 1 to 2147483647"),
        ("log.segment.bytes=1023", "log.segment.bytes = '1023': must be a whole number from 1024 to 2147483647"),
        ("durability=maybe", "durability = 'maybe': must be one of fsync, os"),
        ("auto.create.topics.enable=1", "auto.create.topics.enable = '1': must be true or false"),
        ("log.cleaner.min.cleanable.ratio=1.1", "must be a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio=nan", "must be a number from 0 to 1"),
        ("log.cleanup.policy=delete,shred", "must be a comma-separated list of delete, compact"),
        ("log.retention.ms=-2", "log.retention.ms = '-2': must be a whole number from -1 to 9223372036854775807"),
        ("num.partition=1", "num.partition: there is no such setting; did you mean num.partitions"),
        ("num.partitions", "must be key=value"),
        ("xyzzy=1", "xyzzy: there is no such setting"),
    ],
)
def test_refused_settings_say_key_value_and_range(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides=[override])
    assert words in str(caught.value)


@pytest.mark.parametrize("toml", ["num.partitions = true", "num.partitions = 1.5", "num.partitions = [1]", "num = 3"])
def test_toml_values_of_the_wrong_type_are_refused(toml: str) -> None:
    with pytest.raises(ConfigError, match="num"):
        load(toml)


@pytest.mark.parametrize("name", ["broker.rack", "cluster.name", "super.users", "listeners", "etcd.password"])
def test_bytes_that_are_not_utf_8_are_refused_but_in_names_of_files(name: str) -> None:
    for overrides, environment in (
        ([f"{name}=a\udcff"], {}),
        ([], {f"SEMEL_{name.upper().replace('.', '_')}": "\udcff"}),
    ):
        with pytest.raises(ConfigError, match=f"{name} = .*must be Unicode text"):
            load(environment=environment, overrides=overrides)
    for path in ("log.dir", "ssl.keystore.location", "audit.log.file"):
        assert BROKER_SETTINGS[path].parse("a\udcff") == "a\udcff"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num.partitions = [", "/etc/semel.toml is not TOML: "),
        (
            "# Kafka's\nbroker.id=0\nlog.dirs=/tmp/kafka-logs\n",
            "properties file, as Kafka's server.properties: .* quotes",
        ),
        ("num.partitions: 3", "properties file"),
        ("[log]\ndir=/data", "/etc/semel.toml is not TOML: Invalid value"),
    ],
)
def test_a_file_that_is_not_toml_is_refused_with_its_name(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        load(text, file="/etc/semel.toml")
    assert str(refused.value).startswith("/etc/semel.toml is not TOML")


@pytest.mark.parametrize(
    "overrides",
    [["group.min.session.timeout.ms=2000000"], ["message.max.bytes=2000", "socket.request.max.bytes=1999"]],
)
def test_settings_that_contradict_each_other_are_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="must be at most"):
        load(overrides=overrides)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("group.consumer.session.timeout.ms=1000", "must be from group.consumer.min.session.timeout.ms"),
        ("group.consumer.heartbeat.interval.ms=60000", "to group.consumer.max.heartbeat.interval.ms"),
        ("group.consumer.max.heartbeat.interval.ms=1000", "must be from"),
        ("group.coordinator.rebalance.protocols=consumer", "must contain classic"),
        ("group.consumer.assignors=", "at least one of uniform and range"),
        ("group.consumer.migration.policy=sideways", "disabled, upgrade, downgrade, bidirectional"),
    ],
)
def test_settings_of_the_consumer_protocol_are_checked_together(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(overrides=[override])


def test_heartbeats_come_more_often_than_sessions_end() -> None:
    with pytest.raises(ConfigError, match="must be below"):
        load(
            overrides=[
                "group.consumer.max.heartbeat.interval.ms=60000",
                "group.consumer.heartbeat.interval.ms=45000",
            ]
        )


def test_variables_of_the_commands_are_no_misspelt_settings() -> None:
    commands = click.Context(main)
    options = {str(each.envvar) for each in _parameters(main, commands) if each.envvar}
    assert {"SEMEL_BOOTSTRAP_SERVER", "SEMEL_CONFIG_FILE", "SEMEL_BOOTSTRAP_USER"} <= options
    known = {*options, *VARIABLES, USER_PASSWORD, "SEMEL_BOOTSTRAP_PASSWORD"}
    assert load(environment=dict.fromkeys(known, "x")).warnings == []
    assert {each.removeprefix("SEMEL_").lower().replace("_", ".") for each in known} == set(OF_THE_COMMANDS)
    assert not set(OF_THE_COMMANDS) & set(BROKER_SETTINGS)


def _parameters(command: click.Command, context: click.Context) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from _parameters(found, context)


@pytest.mark.parametrize("variable", ["SEMEL_SASL_MECHANISMS", "SEMEL_NUM_PARTITION", "SEMEL_CONFIG"])
def test_a_misspelt_variable_warns(variable: str) -> None:
    (warning,) = load(environment={variable: "x"}).warnings
    assert warning.startswith(f"{variable} is ignored: ")


def test_unknown_variables_of_the_environment_warn_and_known_ones_are_checked() -> None:
    config = load(environment={"SEMEL_SERVICE_HOST": "10.0.0.1", "PATH": "/bin", "SEMEL_BOOTSTRAP_SERVER": "x"})
    assert config.warnings == ["SEMEL_SERVICE_HOST is ignored: service.host: there is no such setting"]
    with pytest.raises(ConfigError, match="port = 'many'"):
        load(environment={"SEMEL_PORT": "many"})


def test_the_port_that_kubernetes_sets_for_a_service_is_ignored_with_a_warning() -> None:
    config = load("port = 5", {"SEMEL_PORT": "tcp://10.0.0.1:9092"})
    assert config.port == 5
    assert "enableServiceLinks: false" in config.warnings[0]


# --- the declarations themselves ---


def test_every_setting_documents_itself_and_its_default_is_allowed() -> None:
    for name, setting in BROKER_SETTINGS.items():
        assert setting.doc.text.endswith("."), name
        assert "must be" in setting.documentation.lower()
        if setting.default is not None:
            rendered = setting.render(setting.default)
            assert rendered is not None
            assert setting.parse(rendered) == setting.default, name
        for synonym in setting.doc.synonyms:
            assert synonym in BROKER_SETTINGS


def test_types_are_those_of_kafka() -> None:
    kinds = {name: setting.kind for name, setting in BROKER_SETTINGS.items()}
    assert kinds["num.partitions"] is ConfigType.INT
    assert kinds["log.retention.ms"] is ConfigType.LONG
    assert kinds["log.cleanup.policy"] is ConfigType.LIST
    assert kinds["log.cleaner.min.cleanable.ratio"] is ConfigType.DOUBLE
    assert kinds["auto.create.topics.enable"] is ConfigType.BOOLEAN
    assert kinds["durability"] is ConfigType.STRING


@given(st.sampled_from(sorted(BROKER_SETTINGS)), st.text(max_size=12) | st.integers().map(str))
def test_any_text_is_either_a_value_that_reads_back_or_a_config_error(name: str, text: str) -> None:
    setting = BROKER_SETTINGS[name]
    try:
        value = setting.parse(text)
    except ConfigError:
        return
    rendered = setting.render(value)
    assert rendered is None or setting.parse(rendered) == value


# --- dynamic settings ---


def test_dynamic_settings_win_and_their_removal_brings_back_what_was_given() -> None:
    config = load(overrides=["num.partitions=2"])
    config.alter(dynamic_default={"num.partitions": "3"}, dynamic={})
    assert config.num_partitions == 3
    config.alter(dynamic_default={"num.partitions": "3"}, dynamic={"num.partitions": "4"})
    assert config.num_partitions == 4
    assert [int(level.source) for level in config.levels_of("num.partitions")] == [2, 3, 4, 5]
    config.alter(dynamic_default={}, dynamic={})
    assert config.num_partitions == 2


def test_a_static_setting_cannot_change_while_the_broker_runs() -> None:
    config = load()
    with pytest.raises(ConfigError, match="restart"):
        config.alter(dynamic_default={}, dynamic={"log.dir": "/elsewhere"})


def test_a_refused_change_changes_nothing() -> None:
    config = load()
    with pytest.raises(ConfigError):
        config.alter(dynamic_default={}, dynamic={"num.partitions": "5", "message.max.bytes": "x"})
    assert (config.num_partitions, config.dynamic) == (1, {})


def test_two_configurations_share_nothing() -> None:
    one, other = BrokerConfig(), BrokerConfig()
    one.alter(dynamic_default={}, dynamic={"num.partitions": "5"})
    assert (other.num_partitions, other.dynamic) == (1, {})


def test_the_audit_log_is_not_in_the_data_directory() -> None:
    """A new data directory must be empty."""
    with pytest.raises(ConfigError, match=r"audit\.log\.file = /d/audit\.log: must not be in log\.dir"):
        load(overrides=["log.dir=/d", "audit.log.file=/d/audit.log"])
    assert load(overrides=["log.dir=/d", "audit.log.file=/data/audit.log"]).audit_log_file


def test_the_replica_selector_is_kafkas_or_its_short_name() -> None:
    assert not load().has_replica_selector
    for name in ("rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector"):
        assert load(overrides=[f"replica.selector.class={name}"]).has_replica_selector
    with pytest.raises(ConfigError, match=r"replica\.selector\.class = mine: must be empty, rack or org\.apache"):
        load(overrides=["replica.selector.class=mine"])
