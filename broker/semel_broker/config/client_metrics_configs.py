"""PURE: the settings of subscriptions to metrics of clients under Kafka's names (KIP-714): those given, those in force.

A subscription is a resource of type CLIENT_METRICS with a name of its own. It names the metrics that clients push, the
interval, and the clients that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import ConfigSource, ConfigValue
from semel_broker.config.settings import ConfigError, Doc, parse_all, settings_of, unknown
from semel_broker.regex import Expression, compiled

ALL_METRICS: Final = "*"
INTERVAL_MS: Final = 300_000
MATCH_KEYS: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The properties by which a subscription can select clients."""


class ClientMetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of a subscription."""

    metrics: Annotated[
        tuple[str, ...], Doc("Prefixes of the names of the metrics that clients push; *: all of them; empty: none.")
    ] = ()
    interval_ms: Annotated[Annotated[int, Meta(ge=100, le=3_600_000)], Doc("Interval of the pushes.")] = INTERVAL_MS
    match: Annotated[
        tuple[str, ...],
        Doc(
            "Clients that push, as KEY=REGULAR EXPRESSION; all have to match as a whole. Keys: "
            f"{', '.join(MATCH_KEYS)}. Empty: all clients."
        ),
    ] = ()


CLIENT_METRICS_SETTINGS: Final = settings_of(ClientMetricsSettings)

Matcher = tuple[tuple[str, Expression], ...]
"""(key, expression)."""


class MetricsSubscription(msgspec.Struct, frozen=True):
    """One subscription in force."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Matcher

    def selects(self, client: Mapping[str, str]) -> bool:
        """Whether it is for this client. client: its values by the names of MATCH_KEYS. A value that is too long for
        the expression does not match."""
        return all(_selects(expression, client.get(key, "")) for key, expression in self.match)


def _selects(expression: Expression, value: str) -> bool:
    return not expression.is_too_much_for(value) and expression.matches(value)


def check(given: Mapping[str, str | None]) -> dict[str, str]:
    """The settings given for a subscription, in canonical text.

    Raises INVALID_REQUEST for an unknown one or a bad value, as Kafka does, and INVALID_CONFIG for a bad `match`.
    """
    texts: dict[str, object] = {}
    try:
        for name, value in given.items():
            if value is None:
                raise ConfigError(f"{name}: a value is missing; delete the setting instead")
            texts[name] = value
        parsed = parse_all(texts, CLIENT_METRICS_SETTINGS)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    matcher(parsed.get("match", ()))
    return {name: CLIENT_METRICS_SETTINGS[name].render(value) or "" for name, value in parsed.items()}


def matcher(patterns: Iterable[str]) -> Matcher:
    """The compiled patterns. Raises INVALID_CONFIG."""
    made = {}
    for pattern in patterns:
        key, sign, text = (part.strip() for part in pattern.partition("="))
        if not sign or key not in MATCH_KEYS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"match = {pattern!r}: write KEY=REGULAR EXPRESSION, KEY one of {MATCH_KEYS}"
            )
        try:
            made[key] = compiled(text)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"match = {pattern!r}: {error.message}") from None
    return tuple(made.items())


def subscription(given: Mapping[str, str]) -> MetricsSubscription:
    """The subscription with these settings. Raises ConfigError, KafkaError for stored ones that are not valid."""
    parsed = parse_all(given, CLIENT_METRICS_SETTINGS)
    settings = ClientMetricsSettings(**{CLIENT_METRICS_SETTINGS[name].field: value for name, value in parsed.items()})
    return MetricsSubscription(settings.metrics, settings.interval_ms, matcher(settings.match))


def value_of(name: str, given: Mapping[str, str]) -> ConfigValue:
    """The setting `name`, its value in force and its source. Raises ConfigError if there is no such setting."""
    setting = CLIENT_METRICS_SETTINGS.get(name)
    if setting is None:
        raise unknown(name, CLIENT_METRICS_SETTINGS)
    if name in given:
        return ConfigValue(setting, given[name], ConfigSource.CLIENT_METRICS)
    return ConfigValue(setting, setting.render(setting.default), ConfigSource.DEFAULT)
