"""The settings of a broker under Kafka's names, and where each value in force came from.

`load` takes what the operator gave - defaults < TOML file < environment (`SEMEL_LOG_SEGMENT_BYTES`) < `--set` - and
answers a `BrokerConfig`. It reads no file and no environment itself: `__main__` passes both in.
"""

import tomllib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from semel_broker.limits import Limits
from semel_broker.settings import (
    INT32_MAX,
    INT64_MAX,
    Bytes,
    CleanupPolicy,
    ConfigError,
    Count,
    Doc,
    Millis,
    Minutes,
    Ratio,
    Setting,
    TimestampType,
    parse_all,
    settings_of,
    unknown,
)

__all__ = ["BROKER_SETTINGS", "BrokerConfig", "BrokerSettings", "ConfigError", "ConfigSource", "Limits", "load"]

ENVIRONMENT_PREFIX: Final = "SEMEL_"
HOUR_MS: Final = 3_600_000
MIB: Final = 1 << 20
Port = Annotated[int, Meta(ge=0, le=65_535)]
SignedMillis = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
SignedBytes = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
SegmentBytes = Annotated[int, Meta(ge=1024, le=INT32_MAX)]


class BrokerSettings(msgspec.Struct, kw_only=True):
    """Every setting of one broker. The field is the name with dots for underscores; the unit comes last in it."""

    # Identity and network.
    node_id: Annotated[int, Meta(ge=0, le=INT32_MAX), Doc("Id of this broker in the cluster; never changes.")] = 0
    log_dir: Annotated[str, Doc("Directory of all data of this broker.")] = "semel-data"
    host_name: Annotated[str, Doc("Address that the broker listens on.")] = "127.0.0.1"
    port: Annotated[Port, Doc("Port that the broker listens on; 0 takes a free one.")] = 9092
    advertised_host_name: Annotated[str, Doc("Address told to clients; empty: the one listened on.")] = ""
    advertised_port: Annotated[Port, Doc("Port told to clients; 0: the one listened on.")] = 0
    max_connections: Annotated[Count, Doc("Connections held at once; more are closed.", dynamic=True)] = INT32_MAX
    connections_max_idle_ms: Annotated[Millis, Doc("A connection silent for so long is closed.", dynamic=True)] = (
        600_000
    )
    socket_request_max_bytes: Annotated[Bytes, Doc("Largest request; a larger one closes its connection.")] = 100 * MIB
    fetch_max_bytes: Annotated[Bytes, Doc("Most bytes in one answer to a Fetch, whatever is asked.")] = 55 * MIB

    # Durability and topics.
    durability: Annotated[
        Literal["fsync", "os"],
        Doc("fsync: acks=all is answered once on disk. os: once with the operating system, as Kafka's default."),
    ] = "fsync"
    auto_create_topics_enable: Annotated[bool, Doc("Create a topic when a client first asks for it.", dynamic=True)] = (
        True
    )
    delete_topic_enable: Annotated[bool, Doc("Allow DeleteTopics.")] = True
    num_partitions: Annotated[Count, Doc("Partitions of a topic created without a count.", dynamic=True)] = 1
    default_replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32_767)], Doc("Replicas of a topic created without a count.", dynamic=True)
    ] = 1
    min_insync_replicas: Annotated[
        Count, Doc("In-sync replicas that a write with acks=all needs; default of the topics.", dynamic=True)
    ] = 1
    message_max_bytes: Annotated[
        Bytes, Doc("Largest record batch; default of the topics' max.message.bytes.", dynamic=True)
    ] = MIB + 12
    compression_type: Annotated[
        Literal["producer"], Doc("Batches are kept as the producer compressed them.", dynamic=True)
    ] = "producer"

    # Logs: defaults of the topics' settings.
    log_segment_bytes: Annotated[SegmentBytes, Doc("Size at which a new segment begins.", dynamic=True)] = 1024 * MIB
    log_roll_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)] | None,
        Doc("Age at which a new segment begins.", dynamic=True, synonyms=("log.roll.hours",)),
    ] = None
    log_roll_hours: Annotated[Count, Doc("Age at which a new segment begins, unless log.roll.ms is given.")] = 168
    log_retention_ms: Annotated[
        SignedMillis | None,
        Doc(
            "Age at which a segment is deleted; -1: never.",
            dynamic=True,
            synonyms=("log.retention.minutes", "log.retention.hours"),
        ),
    ] = None
    log_retention_minutes: Annotated[
        Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None,
        Doc("The same, unless log.retention.ms is given.", synonyms=("log.retention.hours",)),
    ] = None
    log_retention_hours: Annotated[
        Annotated[int, Meta(ge=-1, le=INT32_MAX)], Doc("The same, unless log.retention.minutes is given.")
    ] = 168
    log_retention_bytes: Annotated[
        SignedBytes, Doc("Size of a partition above which old segments are deleted; -1: none.", dynamic=True)
    ] = -1
    log_retention_check_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("How often old segments are looked for.")
    ] = 300_000
    log_index_interval_bytes: Annotated[Bytes, Doc("Bytes of log between two index entries.", dynamic=True)] = 4096
    log_index_size_max_bytes: Annotated[
        Annotated[int, Meta(ge=12, le=INT32_MAX)], Doc("Largest index of a segment.", dynamic=True)
    ] = 10 * MIB
    log_cleanup_policy: Annotated[
        CleanupPolicy, Doc("delete: by age and size. compact: keep the last value of each key.", dynamic=True)
    ] = ("delete",)
    log_message_timestamp_type: Annotated[
        TimestampType, Doc("Whether a record's timestamp is the producer's or the time of its append.", dynamic=True)
    ] = "CreateTime"
    log_message_timestamp_before_max_ms: Annotated[
        Millis, Doc("Most that a producer's timestamp may lie in the past.", dynamic=True)
    ] = INT64_MAX
    log_message_timestamp_after_max_ms: Annotated[
        Millis, Doc("Most that a producer's timestamp may lie in the future.", dynamic=True)
    ] = HOUR_MS
    log_flush_offset_checkpoint_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)],
        Doc("How often logs are synced and recovery points noted."),
    ] = 60_000

    # Compaction.
    log_cleaner_enable: Annotated[bool, Doc("Compact the logs whose policy asks for it.")] = True
    log_cleaner_backoff_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("Rest of the cleaner when nothing is dirty.", dynamic=True)
    ] = 15_000
    log_cleaner_dedupe_buffer_size: Annotated[
        Annotated[int, Meta(ge=MIB, le=INT64_MAX)], Doc("Bytes for the keys of one compaction pass.", dynamic=True)
    ] = 32 * MIB
    log_cleaner_min_cleanable_ratio: Annotated[
        Ratio, Doc("Dirty share of a log that calls the cleaner.", dynamic=True)
    ] = 0.5
    log_cleaner_min_compaction_lag_ms: Annotated[
        Millis, Doc("Least age of a record before it is compacted.", dynamic=True)
    ] = 0
    log_cleaner_max_compaction_lag_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("Most age of a record before it is compacted.", dynamic=True)
    ] = INT64_MAX
    log_cleaner_delete_retention_ms: Annotated[
        Millis, Doc("Time for which a tombstone is kept after compaction.", dynamic=True)
    ] = 24 * HOUR_MS

    # Producers.
    producer_id_expiration_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)], Doc("A producer silent for so long is forgotten.", dynamic=True)
    ] = 24 * HOUR_MS
    producer_id_expiration_check_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)], Doc("How often silent producers are looked for.")
    ] = 600_000

    # Consumer groups and their offsets.
    group_min_session_timeout_ms: Annotated[Bytes, Doc("Least session timeout that a member may ask for.")] = 6_000
    group_max_session_timeout_ms: Annotated[Bytes, Doc("Most session timeout that a member may ask for.")] = 1_800_000
    # Not Kafka's 3000: counted anew with each newcomer, a short wait gathers what one command starts, and a person who
    # starts a single consumer does not notice it.
    group_initial_rebalance_delay_ms: Annotated[Bytes, Doc("Time an empty group waits for more members.")] = 300
    group_max_size: Annotated[Count, Doc("Members that one group may have.")] = INT32_MAX
    offset_metadata_max_bytes: Annotated[Bytes, Doc("Largest metadata of a committed offset.")] = 4_096
    offsets_topic_num_partitions: Annotated[Count, Doc("Partitions of __consumer_offsets; fixed once it exists.")] = 50
    offsets_topic_replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32_767)], Doc("Replicas of __consumer_offsets.")
    ] = 1
    offsets_topic_segment_bytes: Annotated[SegmentBytes, Doc("Segment size of __consumer_offsets.")] = 100 * MIB
    offsets_retention_minutes: Annotated[Minutes, Doc("Offsets of a group empty for so long are dropped.")] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("How often dropped offsets are looked for.")
    ] = 600_000

    # Transactions.
    transaction_version: Annotated[
        Annotated[int, Meta(ge=1, le=2)],
        Doc("2: every end of a transaction bumps the producer's epoch, for clients that can (KIP-890). 1: never."),
    ] = 2
    transaction_max_timeout_ms: Annotated[Count, Doc("Most transaction timeout that a producer may ask for.")] = 900_000
    transaction_two_phase_commit_enable: Annotated[
        bool, Doc("Allow producers whose prepared transactions never time out (KIP-939).")
    ] = False
    transactional_id_expiration_ms: Annotated[Count, Doc("A transactional id unused for so long is forgotten.")] = (
        604_800_000
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Annotated[
        Count, Doc("How often transactions are looked for that are open for too long.")
    ] = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: Annotated[
        Count, Doc("How often transactional ids are looked for that are to be forgotten.")
    ] = 3_600_000
    transaction_state_log_num_partitions: Annotated[
        Count, Doc("Partitions of __transaction_state; fixed once it exists.")
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32_767)], Doc("Replicas of __transaction_state.")
    ] = 1
    transaction_state_log_segment_bytes: Annotated[SegmentBytes, Doc("Segment size of __transaction_state.")] = (
        100 * MIB
    )


BROKER_SETTINGS: Final = settings_of(BrokerSettings)


class ConfigSource(IntEnum):
    """Where a value in force came from, as DescribeConfigs tells it (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigValue(msgspec.Struct, frozen=True):
    """A setting as it stands: what it is, its value as text (None: it has none), and where that came from."""

    setting: Setting
    value: str | None
    source: ConfigSource


class BrokerConfig(BrokerSettings, kw_only=True):
    """The settings in force. Read a field when it is needed, not once: `alter` changes the dynamic ones in place.

    `given` is what the operator started the broker with; `dynamic_default` and `dynamic` what AlterConfigs has set for
    all brokers and for this one. Later ones win. `warnings`: what looked odd, for the log.
    """

    given: dict[str, str] = {}
    dynamic_default: dict[str, str] = {}
    dynamic: dict[str, str] = {}
    limits: Limits = Limits()
    warnings: list[str] = []

    @property
    def retention_ms(self) -> int:
        """`log.retention.ms`, else minutes, else hours; -1: for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * 60_000
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * HOUR_MS

    @property
    def roll_ms(self) -> int:
        """`log.roll.ms`, else hours."""
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    def value_of(self, name: str) -> ConfigValue:
        """The setting `name` as it stands. Raises ConfigError when there is none of that name."""
        if name not in BROKER_SETTINGS:
            raise unknown(name, BROKER_SETTINGS)
        return self.levels_of(name)[0]

    def levels_of(self, name: str) -> list[ConfigValue]:
        """The values of `name` on every level that has one, the one in force first; the default is always there."""
        setting = BROKER_SETTINGS[name]
        layers = (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.given),
        )
        levels = [ConfigValue(setting, layer[name], source) for source, layer in layers if name in layer]
        return [*levels, ConfigValue(setting, setting.render(setting.default), ConfigSource.DEFAULT)]

    def alter(self, *, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]) -> None:
        """Put these dynamic settings (all that are set, not only the changed ones) in force.

        Raises ConfigError, before anything is changed, for one that is unknown, malformed or not dynamic.
        """
        for name in (*dynamic_default, *dynamic):
            if name in BROKER_SETTINGS and not BROKER_SETTINGS[name].doc.dynamic:
                raise ConfigError(
                    f"{name} cannot change while the broker runs: set it in its configuration and restart it"
                )
        layers = (parse_all(self.given, BROKER_SETTINGS), parse_all(dynamic_default, BROKER_SETTINGS))
        merged: dict[str, Any] = {**layers[0], **layers[1], **parse_all(dynamic, BROKER_SETTINGS)}
        self.dynamic_default, self.dynamic = dict(dynamic_default), dict(dynamic)
        for name, setting in BROKER_SETTINGS.items():
            if setting.doc.dynamic:
                setattr(self, setting.field, merged.get(name, setting.default))


def load(
    toml: str | None = None, environment: Mapping[str, str] | None = None, overrides: Iterable[str] = ()
) -> BrokerConfig:
    """The configuration given by the text of a TOML file, an environment and `key=value` overrides; later ones win.

    Tables and dotted keys of TOML mean the same. Raises ConfigError naming the key, the value and what is allowed.
    """
    raw: dict[str, object] = {}
    if toml is not None:
        try:
            raw.update(_flat(tomllib.loads(toml)))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the configuration file is not TOML: {error}") from None
    warnings: list[str] = []
    for name, value in _from_environment(environment or {}).items():
        if ALIASES.get(name, name) in BROKER_SETTINGS:
            raw[name] = value
        else:  # not an error: orchestrators put variables of their own beside ours (SEMEL_SERVICE_HOST)
            variable = ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
            warnings.append(f"{variable} is ignored: {unknown(name, BROKER_SETTINGS)}")
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override}: must be key=value, such as --set num.partitions=3")
        raw[name.strip()] = value
    parsed = parse_all({ALIASES.get(name, name): value for name, value in raw.items()}, BROKER_SETTINGS)
    config = BrokerConfig(**{BROKER_SETTINGS[name].field: value for name, value in parsed.items()})
    config.given = {name: BROKER_SETTINGS[name].render(value) or "" for name, value in parsed.items()}
    config.warnings = warnings
    _check_together(config)
    return config


ALIASES: Final = {"broker.id": "node.id", "log.dirs": "log.dir"}


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        name = prefix + key
        flat.update(_flat(value, name + ".") if isinstance(value, dict) else {name: value})
    return flat


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """What variables that begin with `SEMEL_` set, in name order, by name of setting."""
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _check_together(config: BrokerConfig) -> None:
    """What no single setting can tell. Raises ConfigError."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            f"group.min.session.timeout.ms = {config.group_min_session_timeout_ms}: must be at most "
            f"group.max.session.timeout.ms, which is {config.group_max_session_timeout_ms}"
        )
    if config.message_max_bytes > config.socket_request_max_bytes:
        raise ConfigError(
            f"message.max.bytes = {config.message_max_bytes}: must be at most socket.request.max.bytes, "
            f"which is {config.socket_request_max_bytes}"
        )
