"""The settings of a topic under Kafka's names: what may be given, what is in force, and what its logs get of it.

A setting that a topic was not given follows the broker's (`retention.ms` follows `log.retention.ms`, and that
`log.retention.minutes`, ...), also when the broker's changes at run time.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from semel_storage.log_config import LogConfig

from semel_broker.config import BROKER_SETTINGS, BrokerConfig, ConfigSource, ConfigValue
from semel_broker.settings import (
    INT32_MAX,
    INT64_MAX,
    Bytes,
    CleanupPolicy,
    ConfigError,
    Count,
    Doc,
    Millis,
    Ratio,
    Setting,
    TimestampType,
    parse_all,
    settings_of,
    unknown,
)

SignedLong = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
PositiveMillis = Annotated[int, Meta(ge=1, le=INT64_MAX)]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of a topic; `LogConfig` has the same fields. The synonym is the broker's setting it follows."""

    cleanup_policy: Annotated[
        CleanupPolicy,
        Doc("delete: by age and size. compact: keep the last value of each key.", synonyms=("log.cleanup.policy",)),
    ]
    compression_type: Annotated[
        Literal["producer"], Doc("Batches are kept as the producer compressed them.", synonyms=("compression.type",))
    ]
    delete_retention_ms: Annotated[
        Millis,
        Doc("Time for which a tombstone is kept after compaction.", synonyms=("log.cleaner.delete.retention.ms",)),
    ]
    index_interval_bytes: Annotated[
        Bytes, Doc("Bytes of log between two index entries.", synonyms=("log.index.interval.bytes",))
    ]
    max_compaction_lag_ms: Annotated[
        PositiveMillis,
        Doc("Most age of a record before it is compacted.", synonyms=("log.cleaner.max.compaction.lag.ms",)),
    ]
    max_message_bytes: Annotated[Bytes, Doc("Largest record batch.", synonyms=("message.max.bytes",))]
    message_timestamp_after_max_ms: Annotated[
        Millis,
        Doc(
            "Most that a producer's timestamp may lie in the future.",
            synonyms=("log.message.timestamp.after.max.ms",),
        ),
    ]
    message_timestamp_before_max_ms: Annotated[
        Millis,
        Doc(
            "Most that a producer's timestamp may lie in the past.",
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
        Ratio, Doc("Dirty share of a log that calls the cleaner.", synonyms=("log.cleaner.min.cleanable.ratio",))
    ]
    min_compaction_lag_ms: Annotated[
        Millis,
        Doc("Least age of a record before it is compacted.", synonyms=("log.cleaner.min.compaction.lag.ms",)),
    ]
    min_insync_replicas: Annotated[
        Count, Doc("In-sync replicas that a write with acks=all needs.", synonyms=("min.insync.replicas",))
    ]
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
    segment_ms: Annotated[PositiveMillis, Doc("Age at which a new segment begins.", synonyms=("log.roll.ms",))]


TOPIC_SETTINGS: Final = settings_of(TopicSettings)


def check(given: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """The settings given for a topic, each in its canonical text.

    Raises ConfigError for the first that is unknown, without value or cannot be.
    """
    texts: dict[str, object] = {}
    for name, value in given.items():
        if value is None:
            raise ConfigError(f"{name}: a value is missing; leave the setting out to follow the broker's")
        if len(value) > broker.limits.config_value_length_max:
            raise ConfigError(f"{name}: a value may be {broker.limits.config_value_length_max} characters long")
        texts[name] = value
    parsed = parse_all(texts, TOPIC_SETTINGS)
    if parsed.get("cleanup.policy") == ():
        raise ConfigError("cleanup.policy = '': must be one or both of delete, compact")
    lag = _merged(parsed, broker)
    if lag["min_compaction_lag_ms"] > lag["max_compaction_lag_ms"]:
        raise ConfigError(
            f"min.compaction.lag.ms = {lag['min_compaction_lag_ms']}: must be at most max.compaction.lag.ms, "
            f"which is {lag['max_compaction_lag_ms']}"
        )
    return {name: TOPIC_SETTINGS[name].render(value) or "" for name, value in parsed.items()}


def in_force(given: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """All settings of a topic that was given these, the rest following the broker's as they stand."""
    return LogConfig(**_merged(parse_all(given, TOPIC_SETTINGS), broker))


def value_of(name: str, given: Mapping[str, str], broker: BrokerConfig) -> ConfigValue:
    """The topic setting `name` as it stands and where that comes from. Raises ConfigError when there is none."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise unknown(name, TOPIC_SETTINGS)
    if name in given:
        return ConfigValue(setting, given[name], ConfigSource.TOPIC)
    followed = _followed(setting, broker)
    return ConfigValue(setting, setting.render(_default(setting, broker)), followed.source)


def describe(given: Mapping[str, str], broker: BrokerConfig) -> list[ConfigValue]:
    """Every setting of a topic that was given these, as it stands."""
    return [value_of(name, given, broker) for name in TOPIC_SETTINGS]


def synonyms_of(value: ConfigValue, broker: BrokerConfig) -> list[ConfigValue]:
    """A topic's setting on every level where it has a value, in order of precedence (KIP-226)."""
    levels = [value] if value.source is ConfigSource.TOPIC else []
    for name in _followed_names(value.setting):
        levels.extend(broker.levels_of(name))
    return levels


def _followed_names(setting: Setting) -> list[str]:
    """The broker's settings that a topic's setting follows, nearest first."""
    return [name for first in setting.doc.synonyms for name in (first, *BROKER_SETTINGS[first].doc.synonyms)]


def _merged(parsed: Mapping[str, Any], broker: BrokerConfig) -> dict[str, Any]:
    return {s.field: parsed[n] if n in parsed else _default(s, broker) for n, s in TOPIC_SETTINGS.items()}


def _default(setting: Setting, broker: BrokerConfig) -> Any:
    """The broker's value that a topic without its own follows."""
    match setting.name:
        case "retention.ms":
            return broker.retention_ms
        case "segment.ms":
            return broker.roll_ms
        case _:
            return getattr(broker, BROKER_SETTINGS[setting.doc.synonyms[0]].field)


def _followed(setting: Setting, broker: BrokerConfig) -> ConfigValue:
    """The broker's setting that gives a topic without its own the value."""
    values = [broker.value_of(name) for name in _followed_names(setting)]
    return next((v for v in values if v.source is not ConfigSource.DEFAULT), values[-1])
