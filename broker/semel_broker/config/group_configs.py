"""PURE: the settings of groups of the consumer protocol under Kafka's names (KIP-848): those given, those in force.

A setting that is not given for a group follows the broker's (`group.consumer.session.timeout.ms`, ...). The bounds of
the broker hold for a new value. They may change later, so the value in force is the nearest one within them.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from semel_broker.config.loading import BROKER_SETTINGS, BrokerConfig, ConfigSource, ConfigValue
from semel_broker.config.settings import ConfigError, Count, Doc, parse_all, settings_of, unknown

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of a group. Synonyms: the setting of the broker that it follows."""

    consumer_heartbeat_interval_ms: Annotated[
        Count,
        Doc(
            "Interval of the heartbeats of members of the consumer protocol.",
            synonyms=("group.consumer.heartbeat.interval.ms",),
        ),
    ]
    consumer_session_timeout_ms: Annotated[
        Count,
        Doc(
            "Session timeout of members of the consumer protocol.",
            synonyms=("group.consumer.session.timeout.ms",),
        ),
    ]


GROUP_SETTINGS: Final = settings_of(GroupSettings)


def check(given: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """The settings given for a group, in canonical text.

    Raises ConfigError for the first one that is unknown, has no value, or is out of the broker's bounds.
    """
    texts: dict[str, object] = {}
    for name, value in given.items():
        if value is None:
            raise ConfigError(f"{name}: a value is missing; delete the setting instead")
        texts[name] = value
    parsed = parse_all(texts, GROUP_SETTINGS)
    for name, value in parsed.items():
        low, high = _bounds(name, broker)
        if not low <= value <= high:
            raise ConfigError(
                f"{name} = {value}: must be from {_bound(name, 'min')}, which is {low}, to {_bound(name, 'max')}, "
                f"which is {high}"
            )
    result = {name: GROUP_SETTINGS[name].render(value) or "" for name, value in parsed.items()}
    interval, timeout = in_force(HEARTBEAT_INTERVAL, result, broker), in_force(SESSION_TIMEOUT, result, broker)
    if interval >= timeout:
        raise ConfigError(f"{HEARTBEAT_INTERVAL} = {interval}: must be below {SESSION_TIMEOUT}, which is {timeout}")
    return result


def in_force(name: str, given: Mapping[str, str], broker: BrokerConfig) -> int:
    """The value of a setting of a group with these of its own, within the broker's bounds."""
    if name not in given:
        return int(getattr(broker, f"group.{name}".replace(".", "_")))
    low, high = _bounds(name, broker)
    return min(max(int(GROUP_SETTINGS[name].parse(given[name])), low), high)


def value_of(name: str, given: Mapping[str, str], broker: BrokerConfig) -> ConfigValue:
    """The group setting `name`, its value in force and its source. Raises ConfigError if there is no such setting."""
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        raise unknown(name, GROUP_SETTINGS)
    if name in given:
        return ConfigValue(setting, str(in_force(name, given, broker)), ConfigSource.GROUP)
    followed = broker.value_of(setting.doc.synonyms[0])
    return ConfigValue(setting, followed.value, followed.source)


def synonyms_of(value: ConfigValue, broker: BrokerConfig) -> list[ConfigValue]:
    """A group's setting on every level where it has a value, in order of precedence (KIP-226)."""
    levels = [value] if value.source is ConfigSource.GROUP else []
    return [*levels, *broker.levels_of(*value.setting.doc.synonyms)]


def _bound(name: str, which: str) -> str:
    return f"group.consumer.{which}.{name.removeprefix('consumer.')}"


def _bounds(name: str, broker: BrokerConfig) -> tuple[int, int]:
    low, high = (getattr(broker, BROKER_SETTINGS[_bound(name, which)].field) for which in ("min", "max"))
    return low, high
