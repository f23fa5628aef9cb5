"""PURE: the settings of a topic under Kafka's names: those given, those in force, and those of its logs.

A setting that is not given for a topic follows the broker's, also when that changes while the broker runs
(`retention.ms` follows `log.retention.ms`, which follows `log.retention.minutes`, ...).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from semel_storage.segments.log_config import LogConfig

from semel_broker.config.broker_settings import DELETE_DELAY, JITTER, PREALLOCATE, REMOTE, LocalRetention
from semel_broker.config.loading import BROKER_SETTINGS, BrokerConfig, ConfigSource, ConfigValue
from semel_broker.config.settings import (
    INT32_MAX,
    INT64_MAX,
    Bytes,
    CleanupPolicy,
    CompressionType,
    ConfigError,
    Count,
    Doc,
    GzipLevel,
    Lz4Level,
    Millis,
    Ratio,
    Records,
    Setting,
    TimestampType,
    ZstdLevel,
    parse_all,
    settings_of,
    unknown,
)

SignedLong = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
PositiveMillis = Annotated[int, Meta(ge=1, le=INT64_MAX)]
REPLICAS: Final = "* for all, or partition:broker pairs, such as 0:1,1:2."
THROTTLED: Final = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of a topic; `LogConfig` has those with an effect. Synonyms: the settings it follows."""

    cleanup_policy: Annotated[
        CleanupPolicy,
        Doc("delete: by age and size. compact: keep the last value of each key.", synonyms=("log.cleanup.policy",)),
    ]
    compression_gzip_level: Annotated[
        GzipLevel,
        Doc(
            "Level at which batches are recompressed with gzip; -1: gzip's own default.",
            synonyms=("compression.gzip.level",),
        ),
    ]
    compression_lz4_level: Annotated[
        Lz4Level,
        Doc(
            "Level at which batches are recompressed with lz4; 9: the fast compressor.",
            synonyms=("compression.lz4.level",),
        ),
    ]
    compression_type: Annotated[
        CompressionType,
        Doc("Codec of stored batches; producer: the one that the producer used.", synonyms=("compression.type",)),
    ]
    compression_zstd_level: Annotated[
        ZstdLevel,
        Doc(
            "Level at which batches are recompressed with zstd; levels above 10 would block other requests.",
            synonyms=("compression.zstd.level",),
        ),
    ]
    delete_retention_ms: Annotated[
        Millis,
        Doc("Time for which a tombstone is kept after compaction.", synonyms=("log.cleaner.delete.retention.ms",)),
    ]
    file_delete_delay_ms: Annotated[
        Millis, Doc(DELETE_DELAY, synonyms=("log.segment.delete.delay.ms",), no_effect=True)
    ] = 0
    flush_messages: Annotated[
        Records,
        Doc(
            "With durability=os: records after which a sync begins; acknowledgements do not wait.",
            synonyms=("log.flush.interval.messages",),
        ),
    ]
    flush_ms: Annotated[
        Millis,
        Doc(
            "With durability=os: time after which a sync begins; acknowledgements do not wait.",
            synonyms=("log.flush.interval.ms",),
        ),
    ]
    follower_replication_throttled_replicas: Annotated[
        tuple[str, ...], Doc(f"Replicas to which follower.replication.throttled.rate applies: {REPLICAS}")
    ] = ()
    index_interval_bytes: Annotated[
        Bytes, Doc("Bytes of log between two index entries.", synonyms=("log.index.interval.bytes",))
    ]
    leader_replication_throttled_replicas: Annotated[
        tuple[str, ...], Doc(f"Replicas to which leader.replication.throttled.rate applies: {REPLICAS}")
    ] = ()
    local_retention_bytes: Annotated[
        LocalRetention, Doc(REMOTE, synonyms=("log.local.retention.bytes",), no_effect=True)
    ] = -2
    local_retention_ms: Annotated[
        LocalRetention, Doc(REMOTE, synonyms=("log.local.retention.ms",), no_effect=True)
    ] = -2
    max_compaction_lag_ms: Annotated[
        PositiveMillis,
        Doc("Greatest age of a record before it is compacted.", synonyms=("log.cleaner.max.compaction.lag.ms",)),
    ]
    max_message_bytes: Annotated[Bytes, Doc("Largest record batch.", synonyms=("message.max.bytes",))]
    message_timestamp_after_max_ms: Annotated[
        Millis,
        Doc(
            "Greatest time that a producer's timestamp may lie in the future.",
            synonyms=("log.message.timestamp.after.max.ms",),
        ),
    ]
    message_timestamp_before_max_ms: Annotated[
        Millis,
        Doc(
            "Greatest time that a producer's timestamp may lie in the past.",
            synonyms=("log.message.timestamp.before.max.ms",),
        ),
    ]
    message_timestamp_type: Annotated[
        TimestampType,
        Doc(
            "Whether a record's timestamp is the producer's or the time of its append.",
            synonyms=("log.message.timestamp.type",),
        ),
    ]
    min_cleanable_dirty_ratio: Annotated[
        Ratio, Doc("Dirty share of a log at which it is compacted.", synonyms=("log.cleaner.min.cleanable.ratio",))
    ]
    min_compaction_lag_ms: Annotated[
        Millis,
        Doc("Least age of a record before it is compacted.", synonyms=("log.cleaner.min.compaction.lag.ms",)),
    ]
    min_insync_replicas: Annotated[
        Count, Doc("In-sync replicas that a write with acks=all needs.", synonyms=("min.insync.replicas",))
    ]
    preallocate: Annotated[bool, Doc(PREALLOCATE, synonyms=("log.preallocate",), no_effect=True)] = False
    remote_log_copy_disable: Annotated[bool, Doc(REMOTE, no_effect=True)] = False
    remote_log_delete_on_disable: Annotated[bool, Doc(REMOTE, no_effect=True)] = False
    remote_storage_enable: Annotated[bool, Doc(REMOTE, fixed=True)] = False
    retention_bytes: Annotated[
        SignedLong,
        Doc("Size of a partition above which old segments are deleted; -1: none.", synonyms=("log.retention.bytes",)),
    ]
    retention_ms: Annotated[
        SignedLong, Doc("Age at which a segment is deleted; -1: never.", synonyms=("log.retention.ms",))
    ]
    segment_bytes: Annotated[
        Annotated[int, Meta(ge=1024, le=INT32_MAX)],
        Doc("Size at which a new segment begins.", synonyms=("log.segment.bytes",)),
    ]
    segment_index_bytes: Annotated[
        Annotated[int, Meta(ge=12, le=INT32_MAX)],
        Doc("Largest index of a segment.", synonyms=("log.index.size.max.bytes",)),
    ]
    segment_jitter_ms: Annotated[Millis, Doc(JITTER, no_effect=True)] = 0
    segment_ms: Annotated[PositiveMillis, Doc("Age at which a new segment begins.", synonyms=("log.roll.ms",))]
    unclean_leader_election_enable: Annotated[
        bool,
        Doc(
            "A replica that is not in sync is never elected, because acknowledged records would be lost.",
            synonyms=("unclean.leader.election.enable",),
            fixed=True,
        ),
    ] = False


TOPIC_SETTINGS: Final = settings_of(TopicSettings)
EFFECTIVE: Final = {n: s for n, s in TOPIC_SETTINGS.items() if not s.doc.fixed and not s.doc.no_effect}
PRODUCER: Final = "producer"
"""The `compression.type` of topics whose batches are stored as they come."""


def check(given: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """The settings given for a topic, in canonical text.

    Raises ConfigError for the first one that is unknown, has no value, or has a bad value.
    """
    texts: dict[str, object] = {}
    for name, value in given.items():
        if value is None:
            raise ConfigError(f"{name}: a value is missing; leave the setting out to follow the broker's")
        if len(value) > broker.limits.config_value_length_max:
            raise ConfigError(f"{name}: a value may be {broker.limits.config_value_length_max} characters long")
        texts[name] = value
    parsed = parse_all(texts, TOPIC_SETTINGS)
    for name in THROTTLED:
        if name in parsed:
            parsed[name] = _throttled(name, parsed[name])
    lag = _merged(parsed, broker)
    if lag["min_compaction_lag_ms"] > lag["max_compaction_lag_ms"]:
        raise ConfigError(
            f"min.compaction.lag.ms = {lag['min_compaction_lag_ms']}: must be at most max.compaction.lag.ms, "
            f"which is {lag['max_compaction_lag_ms']}"
        )
    return {name: TOPIC_SETTINGS[name].render(value) or "" for name, value in parsed.items()}


def _throttled(name: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    """`*`, or partition:broker pairs (KIP-73). Raises ConfigError."""
    if listed == ("*",):
        return listed
    pairs = [each.split(":") for each in listed if each]
    if not all(len(pair) == 2 and all(part.isascii() and part.isdigit() for part in pair) for pair in pairs):
        raise ConfigError(f"{name} = {','.join(listed)!r}: must be {REPLICAS}")
    return tuple(f"{partition.lstrip('0') or 0}:{broker.lstrip('0') or 0}" for partition, broker in pairs)


def in_force(given: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """All settings of a topic with these of its own; the others have the broker's values in force."""
    return LogConfig(**_merged(parse_all(given, TOPIC_SETTINGS), broker))


def value_of(name: str, given: Mapping[str, str], broker: BrokerConfig) -> ConfigValue:
    """The topic setting `name`, its value in force and its source. Raises ConfigError if there is no such setting."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise unknown(name, TOPIC_SETTINGS)
    if name in given:
        return ConfigValue(setting, given[name], ConfigSource.TOPIC)
    followed = _followed(setting, broker)
    source = followed[0].source if followed else ConfigSource.DEFAULT
    return ConfigValue(setting, setting.render(_default(setting, broker)), source)


def describe(given: Mapping[str, str], broker: BrokerConfig) -> list[ConfigValue]:
    """Every setting of a topic with these of its own, with its value in force."""
    return [value_of(name, given, broker) for name in TOPIC_SETTINGS]


def synonyms_of(value: ConfigValue, broker: BrokerConfig) -> list[ConfigValue]:
    """A topic's setting on every level where it has a value, in order of precedence (KIP-226)."""
    levels = [value] if value.source is ConfigSource.TOPIC else []
    return [*levels, *_followed(value.setting, broker)]


def _followed(setting: Setting, broker: BrokerConfig) -> list[ConfigValue]:
    """The values of the broker's settings that a topic's setting follows; the one in force first."""
    names = [name for first in setting.doc.synonyms for name in (first, *BROKER_SETTINGS[first].doc.synonyms)]
    return broker.levels_of(*names) if names else []


def _merged(parsed: Mapping[str, Any], broker: BrokerConfig) -> dict[str, Any]:
    return {s.field: parsed[n] if n in parsed else _default(s, broker) for n, s in EFFECTIVE.items()}


def _default(setting: Setting, broker: BrokerConfig) -> Any:
    """The broker's value, which holds for a topic without a value of its own."""
    match setting.name:
        case _ if setting.doc.fixed or not setting.doc.synonyms:
            return setting.default
        case "flush.ms":
            return broker.flush_ms
        case "retention.ms":
            return broker.retention_ms
        case "segment.ms":
            return broker.roll_ms
        case _:
            return getattr(broker, BROKER_SETTINGS[setting.doc.synonyms[0]].field)
