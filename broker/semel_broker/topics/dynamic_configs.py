"""Settings of brokers, groups and subscriptions altered at run time: stored, and those of brokers put in force.

Kafka's rule (KIP-226): the dynamic value of the broker, else that for all brokers, else the value at its start.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import Image
from semel_broker.cluster.store import (
    Change,
    Expect,
    Put,
    Store,
    StoreClosedError,
    StoreUnavailableError,
)
from semel_broker.cluster.writes import creating, out_of_reach, removing, stays_absent, write
from semel_broker.config import client_metrics_configs, group_configs
from semel_broker.config.edits import Configs
from semel_broker.config.loading import BrokerConfig, ConfigError

PREFIX: Final = "configs/brokers/"
GROUP_PREFIX: Final = "configs/groups/"
CLIENT_METRICS_PREFIX: Final = "configs/client-metrics/"
ALL_BROKERS: Final = ""
"""The resource name that stands for every broker."""

_decode = msgspec.json.Decoder(dict[str, str]).decode


def _key(broker: str) -> str:
    return f"{PREFIX}{broker or '<default>'}"


def follow(image: Image, config: BrokerConfig) -> None:
    """Put the stored settings in force. Raises ConfigError for a setting that this version does not accept."""
    for_all, own = image.configs.get(_key(ALL_BROKERS)), image.configs.get(_key(str(config.node_id)))
    config.alter(
        dynamic_default=_decode(for_all) if for_all else {},
        dynamic=_decode(own) if own else {},
    )


async def alter(
    store: Store,
    feed: Feed,
    config: BrokerConfig,
    broker: str,
    edit: Callable[[Mapping[str, str]], Configs],
    *,
    validate_only: bool = False,
) -> None:
    """Replace the dynamic settings of `broker` (ALL_BROKERS or this broker's id) by what `edit` makes of them.

    Decided on a copy, persisted, then put in force. Raises INVALID_CONFIG, or what `edit` raises.
    """
    checked = partial(_checked, config, broker)
    await _alter(store, feed, _key(broker), edit, checked, validate_only=validate_only)


async def alter_group(
    store: Store,
    feed: Feed,
    config: BrokerConfig,
    group: str,
    edit: Callable[[Mapping[str, str]], Configs],
    *,
    validate_only: bool = False,
) -> None:
    """Replace the settings of a group, which need not exist. Raises INVALID_CONFIG, or what `edit` raises."""

    def checked(new: Configs) -> dict[str, str]:
        try:
            return group_configs.check(new, config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    await _alter(store, feed, GROUP_PREFIX + group, edit, checked, validate_only=validate_only)


def given_for_group(image: Image, group: str) -> dict[str, str]:
    """The settings that a group was given."""
    value = image.configs.get(GROUP_PREFIX + group)
    return _decode(value) if value else {}


def groups_with_settings(image: Image) -> list[str]:
    """The groups that were given settings, sorted."""
    return sorted(key.removeprefix(GROUP_PREFIX) for key in image.configs if key.startswith(GROUP_PREFIX))


async def alter_client_metrics(
    store: Store, feed: Feed, name: str, edit: Callable[[Mapping[str, str]], Configs], *, validate_only: bool = False
) -> None:
    """Replace the settings of a subscription to metrics of clients; without settings there is none.

    Raises INVALID_REQUEST, INVALID_CONFIG, or what `edit` raises.
    """
    key = CLIENT_METRICS_PREFIX + name
    await _alter(store, feed, key, edit, client_metrics_configs.check, validate_only=validate_only)


def given_for_client_metrics(image: Image, name: str) -> dict[str, str]:
    """The settings that a subscription was given."""
    value = image.configs.get(CLIENT_METRICS_PREFIX + name)
    return _decode(value) if value else {}


def client_metrics(image: Image) -> dict[str, dict[str, str]]:
    """The settings of all subscriptions, by name, in order of their names."""
    return {
        key.removeprefix(CLIENT_METRICS_PREFIX): _decode(value)
        for key, value in sorted(image.configs.items())
        if key.startswith(CLIENT_METRICS_PREFIX)
    }


async def _alter(
    store: Store,
    feed: Feed,
    key: str,
    edit: Callable[[Mapping[str, str]], Configs],
    checked: Callable[[Configs], dict[str, str]],
    *,
    validate_only: bool,
) -> None:
    """Decide on what the store has, and return once the image shows the change. Raises REQUEST_TIMED_OUT as well."""
    while True:
        try:
            entry = await store.get(key)
        except (StoreUnavailableError, StoreClosedError) as error:
            raise out_of_reach(error) from None
        texts = checked(edit(_decode(entry.value) if entry else {}))
        if validate_only:
            return
        if entry is None and not texts:
            await stays_absent(store, feed, key)
            if key in feed.image.configs:
                continue
            return
        expects = creating(feed, key) if entry is None else [Expect(key, entry.revision)]
        changes: list[Change] = [Put(key, msgspec.json.encode(texts))] if texts else removing(key)
        if await write(store, feed, expects, changes):
            return


def _checked(config: BrokerConfig, broker: str, new: Configs) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in new.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: a value is missing; delete the setting instead")
        texts[name] = value
    try:
        _put_in_force(msgspec.structs.replace(config), broker, texts)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return texts


def _put_in_force(config: BrokerConfig, broker: str, texts: Mapping[str, str]) -> None:
    if broker == ALL_BROKERS:
        config.alter(dynamic_default=texts, dynamic=config.dynamic)
    else:
        config.alter(dynamic_default=config.dynamic_default, dynamic=texts)
