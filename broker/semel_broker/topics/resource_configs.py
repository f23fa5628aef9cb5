"""The settings of topics, brokers, groups and subscriptions to metrics, for DescribeConfigs and AlterConfigs."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.store import Store
from semel_broker.config import client_metrics_configs, group_configs, topic_configs
from semel_broker.config.client_metrics_configs import CLIENT_METRICS_SETTINGS
from semel_broker.config.edits import Configs, Edit, edited
from semel_broker.config.group_configs import GROUP_SETTINGS
from semel_broker.config.loading import BROKER_SETTINGS, BrokerConfig, ConfigSource, ConfigValue
from semel_broker.config.settings import Setting
from semel_broker.config.topic_configs import TOPIC_SETTINGS
from semel_broker.topics import dynamic_configs
from semel_broker.topics.topics import Topics


class SettingsResourceType(IntEnum):
    """The resource types that have settings here; Kafka has more."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


DECLARED: Final[dict[int, dict[str, Setting]]] = {
    SettingsResourceType.TOPIC: TOPIC_SETTINGS,
    SettingsResourceType.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
    SettingsResourceType.GROUP: GROUP_SETTINGS,
}
"""The settings of all resources but brokers, by type."""


class Described(msgspec.Struct, frozen=True):
    """One setting of a resource: the value in force, and the value of every level that has one."""

    value: ConfigValue
    read_only: bool
    synonyms: list[ConfigValue]


class ResourceConfigs(msgspec.Struct, frozen=True):
    """Settings by (resource type, name); a broker's name is its id, or "" for all brokers."""

    config: BrokerConfig
    store: Store
    topics: Topics

    def describe(self, kind: int, name: str, keys: Sequence[str] | None) -> list[Described]:
        """The settings of a resource, all or those in `keys`; unknown names are left out.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST.
        """
        wanted = dict.fromkeys(keys) if keys else None  # Kafka takes an empty list for all, too
        if kind == SettingsResourceType.TOPIC:
            given = self.topics.required(name).configs
            return [self._topic_setting(s, given) for s in TOPIC_SETTINGS if wanted is None or s in wanted]
        if kind == SettingsResourceType.GROUP:
            group = self._given_for_group(name)
            return [self._group_setting(s, group) for s in GROUP_SETTINGS if wanted is None or s in wanted]
        if kind == SettingsResourceType.CLIENT_METRICS:
            subscription = self._given_for_subscription(name)
            return [
                Described(value, False, [value])
                for value in (client_metrics_configs.value_of(s, subscription) for s in CLIENT_METRICS_SETTINGS)
                if wanted is None or value.setting.name in wanted
            ]
        self._check_broker(kind, name)
        names = list(self.config.dynamic_default) if name == dynamic_configs.ALL_BROKERS else list(BROKER_SETTINGS)
        return [self._broker_setting(s, name) for s in names if wanted is None or s in wanted]

    async def replace(self, kind: int, name: str, configs: Configs, *, validate_only: bool) -> None:
        """Replace all settings of a resource by these. Raises as `describe`, and INVALID_CONFIG."""
        await self._alter(kind, name, lambda _: configs, validate_only)

    async def edit(self, kind: int, name: str, edits: Sequence[Edit], *, validate_only: bool) -> None:
        """Change some settings of a resource. Raises as `describe`, and INVALID_CONFIG."""
        declared = DECLARED.get(kind, BROKER_SETTINGS)

        def change(given: Mapping[str, str]) -> Configs:
            def in_force(setting: str) -> str | None:
                return self._in_force(kind, setting, given)

            return edited(given, edits, declared=declared, in_force=in_force)

        await self._alter(kind, name, change, validate_only)

    def _in_force(self, kind: int, setting: str, given: Mapping[str, str]) -> str | None:
        """The list that APPEND and SUBTRACT change. A group or subscription has a list only if it was given one."""
        if kind == SettingsResourceType.TOPIC:
            return topic_configs.value_of(setting, given, self.config).value
        if kind in DECLARED:
            return given.get(setting)
        return given.get(setting) or self.config.value_of(setting).value

    async def _alter(
        self, kind: int, name: str, edit: Callable[[Mapping[str, str]], Configs], validate_only: bool
    ) -> None:
        if kind == SettingsResourceType.TOPIC:
            await self.topics.alter_configs(name, edit, validate_only=validate_only)
            return
        if kind == SettingsResourceType.GROUP:
            self._given_for_group(name)
            await dynamic_configs.alter_group(
                self.store, self.topics.feed, self.config, name, edit, validate_only=validate_only
            )
            return
        if kind == SettingsResourceType.CLIENT_METRICS:
            self._given_for_subscription(name)
            await dynamic_configs.alter_client_metrics(
                self.store, self.topics.feed, name, edit, validate_only=validate_only
            )
            return
        self._check_broker(kind, name)
        await dynamic_configs.alter(self.store, self.topics.feed, self.config, name, edit, validate_only=validate_only)

    def _check_broker(self, kind: int, name: str) -> None:
        if kind != SettingsResourceType.BROKER:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"resources of type {kind} have no settings here: ask for topics (2), brokers (4), client metrics (16) "
                "or groups (32)",
            )
        if name not in (dynamic_configs.ALL_BROKERS, str(self.config.node_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self.config.node_id}, not {name!r}: ask that broker itself"
            )

    def _given_for_group(self, name: str) -> dict[str, str]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no settings of all groups: name one group")
        return dynamic_configs.given_for_group(self.topics.feed.image, name)

    def _given_for_subscription(self, name: str) -> dict[str, str]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a subscription to metrics of clients needs a name")
        return dynamic_configs.given_for_client_metrics(self.topics.feed.image, name)

    def _group_setting(self, name: str, given: Mapping[str, str]) -> Described:
        value = group_configs.value_of(name, given, self.config)
        return Described(value, False, group_configs.synonyms_of(value, self.config))

    def _topic_setting(self, name: str, given: Mapping[str, str]) -> Described:
        value = topic_configs.value_of(name, given, self.config)
        return Described(value, False, topic_configs.synonyms_of(value, self.config))

    def _broker_setting(self, name: str, broker: str) -> Described:
        setting = BROKER_SETTINGS[name]
        if broker == dynamic_configs.ALL_BROKERS:
            value = ConfigValue(setting, self.config.dynamic_default[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)
            return Described(value, False, [value])
        levels = self.config.levels_of(name, *setting.doc.synonyms)
        return Described(self.config.value_of(name), not setting.doc.dynamic, levels)
