"""PURE: settings of clients as text: Kafka's names and semel's, `-X name=value`, and files of properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from semel._config.consumer import ConsumerConfig
from semel._config.jaas import credentials
from semel._config.producer import ProducerConfig
from semel._config.settings import settings_of
from semel.errors import KafkaConfigurationError

ALIASES = {
    "batch_size": "max_batch_size",
    "connections_max_idle": "connections_max_idle_ms",
    "metadata_broker_list": "bootstrap_servers",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_password": "sasl_plain_password",
    "sasl_username": "sasl_plain_username",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_truststore_location": "ssl_cafile",
}
"""Names of Kafka's Java client and of librdkafka that differ from semel's by more than their dots."""
RULES = {name: each.rule for config in (ProducerConfig, ConsumerConfig) for name, each in settings_of(config).items()}
NO_TEXT = frozenset(name for name, rule in RULES.items() if rule.is_object)
"""Settings whose values are objects of Python."""
JAAS = "sasl_jaas_config"
"""Kafka's setting with user and password in one text. It becomes sasl_plain_username and sasl_plain_password."""
DEFAULT_MECHANISM = "PLAIN"
"""Without a mechanism beside it, credentials for SCRAM are refused: PLAIN would send the password."""
SECRETS = frozenset({JAAS, *(name for name, rule in RULES.items() if rule.is_secret)})
"""Settings whose values must not be seen by others."""
KNOWN = frozenset({*RULES, JAAS}) - NO_TEXT
"""The settings of producer, consumer and admin that can be given as text."""


class Property(msgspec.Struct, frozen=True):
    """A line of a file of properties."""

    name: str
    text: str
    line: int


def own_name(name: str) -> str:
    """semel's name of a setting: `max.request.size` and `batch.size` become `max_request_size`, `max_batch_size`."""
    plain = name.strip().replace(".", "_").replace("-", "_")
    return ALIASES.get(plain, plain)


def value_of(name: str, text: str) -> object:
    """The value that `text` stands for. Raises KafkaConfigurationError with the allowed values."""
    if name == JAAS:
        return text
    rule = RULES[name]
    for value in _readings(text):
        if rule.accepts(value):
            return value
    given = name if rule.is_secret else f"{name}={text}"
    raise KafkaConfigurationError(f"{given}: give {rule.kind}")


def without_jaas(found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one source, with user and password in place of `sasl.jaas.config`.

    Raises KafkaConfigurationError if it cannot be used.
    """
    others = {name: value for name, value in found.items() if name != JAAS}
    if JAAS in found:
        username, password = credentials(found[JAAS], found.get("sasl_mechanism", DEFAULT_MECHANISM))
        others |= {"sasl_plain_username": username, "sasl_plain_password": password}
    return others


def _readings(text: str) -> Iterator[object]:
    """The possible meanings of a text, the most literal first."""
    yield text
    for number in (int, float):
        try:
            yield number(text)
        except ValueError:
            pass
    lower = text.strip().lower()
    if lower in ("true", "false"):
        yield lower == "true"
    if lower in ("", "none", "null"):
        yield None


def properties(text: str) -> Iterator[Property]:
    """The lines `name=value`, or `name: value`, of a file of properties. Empty lines, and lines that begin with # or !,
    say nothing. Raises ValueError for another line, with its number and without its text, which may be secret.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        at = min((found for found in (stripped.find("="), stripped.find(":")) if found >= 0), default=-1)
        if at <= 0:
            raise ValueError(f"line {number} is not NAME=VALUE")
        yield Property(stripped[:at].strip(), stripped[at + 1 :].strip(), number)
