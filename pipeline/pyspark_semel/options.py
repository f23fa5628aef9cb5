"""Parses options with the names of Spark's own Kafka connector: checks them and converts them to client settings.

`kafka.*` are client settings under Kafka's names. Spark passes options in lower case; messages show the documented
spelling.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from semel._config.client import ClientConfig
from semel._config.jaas import credentials

PREFIX = "kafka."
SERVERS = "kafka.bootstrap.servers"

OF_SPARK = ("path", "checkpointLocation", "queryName", "outputMode", "mergeSchema")
"""Options that are ignored: Spark or a user of several formats may leave them in one set of options."""

BOOTSTRAP_TIMEOUT = "kafka.bootstrap.timeout.ms"
BOOTSTRAP_MS = 15_000
"""How long a read or a write tries the bootstrap servers, unless the option says otherwise: long enough for a broker
that is being restarted, short enough for a wrong address.
"""
NO_ANSWER = (
    f"Check {SERVERS}. If the brokers may be away for longer, for example during a restart, raise {BOOTSTRAP_TIMEOUT}"
)

NO_TEXT = ("ssl_context", "sasl_oauth_token_provider", "edge")
"""Client settings whose values are objects of Python."""
KAFKA_NAMES = {"batch.size": "max_batch_size"}
"""Client settings whose name is not Kafka's name in snake case."""
TLS = ("ssl.truststore.location", "ssl.keystore.location", "ssl.key.location", "ssl.key.password")
"""Files are PEM. A keystore holds the certificate, and the key unless it is in a file of its own."""
POINTLESS = (
    "allow.auto.create.topics", "auto.commit.interval.ms", "client.dns.lookup", "connections.max.idle.ms",
    "default.api.timeout.ms", "exclude.internal.topics", "group.id", "group.instance.id", "heartbeat.interval.ms",
    "max.poll.interval.ms", "max.poll.records", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "receive.buffer.bytes", "retries",
    "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)  # fmt: skip
"""Settings of Kafka's clients that are accepted and have no effect here."""
ONLY = {
    "ssl.endpoint.identification.algorithm": (("https",), "the name in the broker's certificate is always checked"),
    "ssl.keystore.type": (("PEM",), "files are PEM"),
    "ssl.truststore.type": (("PEM",), "files are PEM"),
    "sasl.kerberos.service.name": (("kafka",), "Kerberos is not supported"),
    "ssl.protocol": (("TLS", "TLSv1.3"), "the protocol is negotiated with the broker"),
    "ssl.enabled.protocols": (("TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2"), "the protocol is negotiated with the broker"),
}
"""Settings with fixed values here, and the reason; other values are refused."""
WITH_TLS = ("SSL", "SASL_SSL")
JAAS = "sasl.jaas.config"
NO_TOKENS = "use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512: an option cannot be a source of tokens or of Kerberos tickets"


class OptionError(ValueError):
    """A missing, unknown or invalid option; the message says which value to write."""


class UserOptions:
    """The options of the user, looked up without regard to case. `known`: the names that the source or the sink has."""

    def __init__(self, given: Mapping[str, str], known: Collection[str], what: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._refuse_unknown(known, what)

    def _refuse_unknown(self, known: Collection[str], what: str) -> None:
        names = {name.lower(): name for name in (*known, *OF_SPARK)}
        for name in self._given:
            if name not in names and not name.startswith(PREFIX):
                raise OptionError(f"the {what} has no option {name!r}{_instead(name, known)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean option. Raises OptionError for another value than true or false."""
        value = self.text(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise OptionError(f"{name}={self.get(name)!r}: write true or false")
        return value == "true"

    def count(self, name: str, least: int = 1) -> int | None:
        """Return a whole number of at least `least`, None if the option is not set. Raises OptionError."""
        value = self.get(name)
        return None if value is None else whole_number(name, value, least)

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return one of the allowed words. Raises OptionError for another word."""
        value = self.text(name, default).strip().lower()
        if value not in allowed:
            raise OptionError(f"{name}={self.get(name)!r}: write one of {', '.join(allowed)}")
        return value

    def kafka(self) -> dict[str, str]:
        """Return the options that start with `kafka.`, without this prefix."""
        return {name.removeprefix(PREFIX): value for name, value in self._given.items() if name.startswith(PREFIX)}


class SparkClientSettings(msgspec.Struct, frozen=True):
    """Client settings that can be sent from the driver to the workers; `keywords` converts them there."""

    values: dict[str, Any]
    tls: dict[str, str]

    def __repr__(self) -> str:
        return f"<ClientSettings of {self.values.get('bootstrap_servers')}>"  # passwords stay out of logs

    def keywords(self) -> dict[str, Any]:
        """Return keyword arguments for a client. Raises OSError or ssl.SSLError for invalid files of `kafka.ssl.*`."""
        if self.values.get("security_protocol") not in WITH_TLS:
            return self.values
        context = ssl.create_default_context(cafile=self.tls.get("ssl.truststore.location"))
        if certificate := self.tls.get("ssl.keystore.location"):
            context.load_cert_chain(certificate, self.tls.get("ssl.key.location"), self.tls.get("ssl.key.password"))
        return {**self.values, "ssl_context": context}

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """A hashable key, equal for equal settings."""
        return tuple(sorted((name, repr(value)) for name, value in (self.values | self.tls).items()))


def client_settings(
    options: UserOptions, config: type[ClientConfig], *, refused: Mapping[str, str], defaults: Mapping[str, Any]
) -> SparkClientSettings:
    """Convert the `kafka.*` options to settings of `config`. `refused`: name -> the reason why it must not be set.

    Raises OptionError for a refused or unknown setting, a value of the wrong type, and missing bootstrap servers.
    """
    if SERVERS not in options:
        raise OptionError(f"{SERVERS} is missing: write host:port of one broker or of several, with commas between")
    kinds = get_type_hints(config)  # without the rules and meanings of the settings
    values: dict[str, Any] = dict(defaults)
    tls: dict[str, str] = {}
    for name, text in options.kafka().items():
        if name in refused:
            raise OptionError(f"{PREFIX}{name} cannot be set: {refused[name]}")
        if name == "sasl.mechanism" and text.strip() in ("GSSAPI", "OAUTHBEARER"):
            raise OptionError(f"{PREFIX}{name}={text.strip()} cannot be set: {NO_TOKENS}")
        if name == JAAS:
            continue
        if name in ONLY:
            _check_only(name, text)
            continue
        setting = KAFKA_NAMES.get(name, name.replace(".", "_"))
        if name in TLS:
            tls[name] = text
        elif setting in kinds and setting not in NO_TEXT:
            values[setting] = _converted(PREFIX + name, text, kinds[setting])
        elif name not in POINTLESS:
            known = [*(each.replace("_", ".") for each in kinds if each not in NO_TEXT), *TLS, JAAS, *KAFKA_NAMES]
            raise OptionError(f"no client setting {PREFIX}{name}{_instead(name, known, PREFIX)}")
    made = SparkClientSettings(values, tls)
    if tls and values.get("security_protocol") not in WITH_TLS:
        raise OptionError(
            f"{PREFIX}{min(tls)} is given but not {PREFIX}security.protocol=SSL or SASL_SSL: set it, or leave both out"
        )
    try:
        if JAAS in options.kafka():
            mechanism = values.get("sasl_mechanism", "PLAIN")
            values["sasl_plain_username"], values["sasl_plain_password"] = credentials(options.kafka()[JAAS], mechanism)
        config(**made.keywords())
    except (ValueError, OSError) as e:  # KafkaConfigurationError is a ValueError
        raise OptionError(f"{PREFIX}*: {e}") from e
    return made


def _check_only(name: str, text: str) -> None:
    allowed, why = ONLY[name]
    if text.replace(" ", "") not in allowed:
        raise OptionError(
            f"{PREFIX}{name}={text!r} cannot be set: {why}; write {' or '.join(allowed)}, or leave it out"
        )


def whole_number(name: str, text: str, least: int = 1) -> int:
    """Parse `text`. Raises OptionError unless it is a whole number of at least `least`."""
    try:
        number = int(text)
    except ValueError:
        raise OptionError(f"{name}={text!r}: write a whole number") from None
    if number < least:
        raise OptionError(f"{name}={number}: at least {least}")
    return number


def _converted(name: str, text: str, kind: Any) -> Any:
    """Convert `text` to the type of a setting. Raises OptionError."""
    text = text.strip()
    if get_origin(kind) is Literal:
        found = [value for value in get_args(kind) if str(value) == text]
        if not found:
            raise OptionError(f"{name}={text!r}: write one of {', '.join(map(str, get_args(kind)))}")
        return found[0]
    if str in get_args(kind):
        return text
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as e:
        raise OptionError(f"{name}={text!r}: {e}") from None


def _instead(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Suggest the nearest known name, or list all of them."""
    names = {each.lower(): each for each in known}
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    if near:
        return f": did you mean {prefix}{names[near[0]]}?"
    return f"; there are {', '.join(sorted(prefix + each for each in names.values()))}"
