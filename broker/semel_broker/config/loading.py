"""PURE: the settings of a broker under Kafka's names, and the source of each value in force.

`load` merges defaults < TOML file < environment (`SEMEL_LOG_SEGMENT_BYTES`) < `--set` into a `BrokerConfig`. It reads
no file and no environment itself: `__main__` passes both in.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec
from msgspec import field

from semel_broker.config.broker_settings import HOUR_MS, BrokerSettings
from semel_broker.config.limits import Limits
from semel_broker.config.listeners import MANY, SINGLE, Listener, listeners_of, metrics_address
from semel_broker.config.peer_listener import PEERS, PeerListener, split
from semel_broker.config.sasl_settings import SaslSettings, sasl_settings_of
from semel_broker.config.settings import INT64_MAX, ConfigError, Setting, parse_all, settings_of, unknown
from semel_broker.config.tls_settings import PREFIX, TlsSettings, mutual, overridden, tls_settings_of

__all__ = ["BROKER_SETTINGS", "BrokerConfig", "BrokerSettings", "ConfigError", "ConfigSource", "Limits", "load"]

ENVIRONMENT_PREFIX: Final = "SEMEL_"


BROKER_SETTINGS: Final = settings_of(BrokerSettings)


class ConfigSource(IntEnum):
    """The source of a value in force, with the codes of DescribeConfigs (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigValue(msgspec.Struct, frozen=True):
    """A setting, its value in force as text (None: it has none), and the source of the value."""

    setting: Setting
    value: str | None
    source: ConfigSource


class BrokerConfig(BrokerSettings, kw_only=True):
    """The settings in force. Read a field whenever it is needed: `alter` changes the dynamic ones in place.

    `given`: the settings at the start. `dynamic_default` and `dynamic`: those that AlterConfigs has set for all brokers
    and for this one. Later ones win. `warnings`: sentences for the log. `listener_settings`: the settings that
    listeners have of their own, by listener and field.
    """

    given: dict[str, str] = field(default_factory=dict)
    dynamic_default: dict[str, str] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    warnings: list[str] = field(default_factory=list)
    listener_settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<BrokerConfig of node {self.node_id}>"  # keys and passwords stay out of logs

    @property
    def is_clustered(self) -> bool:
        """Whether there may be other brokers."""
        return bool(self.etcd_endpoints)

    @property
    def has_authorizer(self) -> bool:
        """Whether ACLs say what clients may do."""
        return bool(self.authorizer_class_name)

    @property
    def has_replica_selector(self) -> bool:
        """Whether consumers may fetch from followers in their rack."""
        return bool(self.replica_selector_class)

    @property
    def super_user_names(self) -> list[str]:
        """The principals of `super.users`."""
        return _principals(self.super_users)

    @property
    def broker_principal_names(self) -> list[str]:
        """The principals of `broker.principals`."""
        return _principals(self.broker_principals)

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients. Raises ConfigError."""
        return split(self, self.given, listeners_of(self, self.given))[0]

    @property
    def peer_listener(self) -> PeerListener:
        """The listener for other brokers. Raises ConfigError."""
        return split(self, self.given, listeners_of(self, self.given))[1]

    def tls_of(self, listener: str) -> TlsSettings:
        """The TLS of this listener. Raises ConfigError."""
        tls = tls_settings_of(listener, self, self.listener_settings.get(listener, {}))
        return mutual(tls) if listener == self.peer_listener.name else tls

    def sasl_of(self, listener: Listener) -> SaslSettings:
        """The SASL of this listener. Raises ConfigError."""
        return sasl_settings_of(listener, self, self.listener_settings.get(listener.name, {}))

    def is_authenticated(self, listener: Listener) -> bool:
        """Whether every client of this listener has a principal."""
        return listener.has_sasl or (listener.has_tls and self.tls_of(listener.name).client_auth == "required")

    @property
    def internal_topics_factor(self) -> tuple[int, int]:
        """Replicas of `__consumer_offsets` and of `__transaction_state`."""
        usual = 3 if self.is_clustered else 1
        offsets, transactions = self.offsets_topic_replication_factor, self.transaction_state_log_replication_factor
        return offsets or usual, transactions or usual

    @property
    def retention_ms(self) -> int:
        """`log.retention.ms`, else minutes, else hours; -1: for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * 60_000
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * HOUR_MS

    @property
    def flush_ms(self) -> int:
        """`log.flush.interval.ms`; unless it is given, no time is set."""
        return INT64_MAX if self.log_flush_interval_ms is None else self.log_flush_interval_ms

    @property
    def roll_ms(self) -> int:
        """`log.roll.ms`, else hours."""
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    def value_of(self, name: str) -> ConfigValue:
        """The setting `name` and its value in force. Raises ConfigError if there is no such setting."""
        if name not in BROKER_SETTINGS:
            raise unknown(name, BROKER_SETTINGS)
        levels = self.levels_of(name)
        return levels[0] if levels else ConfigValue(BROKER_SETTINGS[name], None, ConfigSource.DEFAULT)

    def levels_of(self, *names: str) -> list[ConfigValue]:
        """The values of a setting and of its synonyms (the names after it) on every level; the one in force first.

        As in Kafka, the default of a synonym is left out if there is no other value.
        """
        layers = (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.given),
        )
        settings = [BROKER_SETTINGS[name] for name in names]
        given = [ConfigValue(s, layer[s.name], source) for source, layer in layers for s in settings if s.name in layer]
        if not given and settings[0].default_text is None:
            return []
        defaults = [(setting, setting.default_text) for setting in settings]
        return [*given, *(ConfigValue(s, text, ConfigSource.DEFAULT) for s, text in defaults if text is not None)]

    def alter(self, *, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]) -> None:
        """Put these dynamic settings in force: all that are set, not only the changed ones.

        Raises ConfigError, before it changes anything, for a setting that is unknown, malformed or not dynamic.
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
    toml: str | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    *,
    file: str = "the configuration file",
) -> BrokerConfig:
    """The configuration given by the text of a TOML file, an environment and `key=value` overrides; later ones win.

    Tables and dotted keys of TOML mean the same. `file`: the name of the TOML file, for errors. Raises ConfigError
    naming the key, the value and what is allowed.
    """
    in_file: dict[str, object] = {}
    if toml is not None:
        try:
            in_file = _flat(tomllib.loads(toml))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(_not_toml(file, toml, error)) from None
    warnings: list[str] = []
    variables: dict[str, object] = {}
    for name, value in _from_environment(environment or {}).items():
        if name == "port" and value.startswith(SERVICE_LINK):
            warnings.append(
                "SEMEL_PORT is ignored: Kubernetes sets it for a Service named semel; set enableServiceLinks: false in "
                "the pod, and the port with --port or in listeners"
            )
        elif ALIASES.get(name, name) in BROKER_SETTINGS or name.startswith(PREFIX):
            variables[name] = value
        elif name not in OF_THE_COMMANDS:
            # Not an error: orchestrators put variables of their own beside ours (SEMEL_SERVICE_HOST).
            variable = ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
            warnings.append(f"{variable} is ignored: {unknown(name, BROKER_SETTINGS)}")
    options: dict[str, object] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override}: must be key=value, such as --set num.partitions=3")
        options[name.strip()] = value
    _choose_listeners(in_file, variables, options)
    raw = in_file | variables | options
    of_listeners = {name: raw.pop(name) for name in list(raw) if name.startswith(PREFIX)}
    parsed = parse_all({ALIASES.get(name, name): value for name, value in raw.items()}, BROKER_SETTINGS)
    config = BrokerConfig(**{BROKER_SETTINGS[name].field: value for name, value in parsed.items()})
    config.given = {name: BROKER_SETTINGS[name].render(value) or "" for name, value in parsed.items()}
    config.warnings = warnings
    _take_listener_settings(config, of_listeners)
    _check_together(config)
    return config


AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""The names of Kafka's authorizer; the second is that of Kafka with ZooKeeper."""
REPLICA_SELECTORS: Final = ("rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector")
OF_THE_COMMANDS: Final = (
    "bootstrap.password",
    "bootstrap.server",
    "bootstrap.user",
    "config.file",
    "sasl.mechanism",
    "sasl.password",
    "sasl.username",
    "schema.registry.url",
    "security.protocol",
    "ssl.cafile",
    "user.password",
)
"""Names of variables that are no settings: those of the commands, and of the first user."""
PROPERTY: Final = re.compile(r"[A-Za-z][\w.-]*\s*[=:]")
"""The beginning of a line of a properties file."""
NOT_IN_TOML: Final = re.compile(r"[\w.-]+\s*(:|=\s*(?!true\b|false\b)[A-Za-z/])")
"""A colon, or text without quotes."""
SERVICE_LINK: Final = "tcp://"
"""The beginning of what Kubernetes sets SEMEL_PORT to."""
ALIASES: Final = {"broker.id": "node.id", "log.dirs": "log.dir"}


def _not_toml(file: str, text: str, error: tomllib.TOMLDecodeError) -> str:
    """Why a file cannot be read. A properties file, such as Kafka's server.properties, is recognised."""
    lines = [line for each in text.splitlines() if (line := each.strip()) and line[0] not in "#!"]
    if all(PROPERTY.match(line) for line in lines) and any(NOT_IN_TOML.match(line) for line in lines):
        return (
            f"{file} is not TOML, but a properties file, as Kafka's server.properties: the names are the same; write "
            f'text in quotes, such as log.dir = "/data" ({error}). `semel serve --settings toml` prints such a file'
        )
    return f"{file} is not TOML: {error}"


def _principals(text: str) -> list[str]:
    return [name for each in text.split(";") if (name := each.strip())]


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        name = prefix + key
        flat.update(_flat(value, name + ".") if isinstance(value, dict) else {name: value})
    return flat


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that begin with `SEMEL_`, in order, by name of setting."""
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _choose_listeners(in_file: dict[str, object], variables: dict[str, object], options: dict[str, object]) -> None:
    """Remove one of the two ways to name listeners: `listeners`, or the settings of a single listener.

    The last source with either way decides. Both ways in one source are left for `listeners_of` to refuse. In the
    environment `listeners` decides, because an image sets SEMEL_HOST_NAME, and its users add SEMEL_LISTENERS.
    """
    for source in (options, variables, in_file):
        has_many, has_single = (not source.keys().isdisjoint(names) for names in (MANY, SINGLE))
        if has_many or has_single:
            if has_many and has_single and source is not variables:
                return
            unused = SINGLE if has_many else MANY
            for each in (in_file, variables, options):
                for name in unused:
                    each.pop(name, None)
            return


def _take_listener_settings(config: BrokerConfig, raw: Mapping[str, object]) -> None:
    """Take the settings `listener.name.<name>.*`. Raises ConfigError."""
    names = [listener.name for listener in config.client_listeners]
    if config.peer_listener.has_tls or config.peer_listener.name != PEERS:
        names.append(config.peer_listener.name)
    for name, value in raw.items():
        if (found := overridden(name, BROKER_SETTINGS, names)) is not None:
            listener, setting = found
            config.listener_settings.setdefault(listener, {})[setting.field] = setting.parse(value)


def _check_consumer_groups(config: BrokerConfig) -> None:
    """Check the settings of the consumer protocol against each other. Raises ConfigError."""
    for what in ("session.timeout.ms", "heartbeat.interval.ms"):
        low, value, high = (
            getattr(config, f"group.consumer.{bound}{what}".replace(".", "_")) for bound in ("min.", "", "max.")
        )
        if not low <= value <= high:
            raise ConfigError(
                f"group.consumer.{what} = {value}: must be from group.consumer.min.{what}, which is {low}, to "
                f"group.consumer.max.{what}, which is {high}"
            )
    if config.group_consumer_heartbeat_interval_ms >= config.group_consumer_session_timeout_ms:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms = {config.group_consumer_heartbeat_interval_ms}: must be below "
            f"group.consumer.session.timeout.ms, which is {config.group_consumer_session_timeout_ms}"
        )
    if "classic" not in config.group_coordinator_rebalance_protocols:
        raise ConfigError("group.coordinator.rebalance.protocols: must contain classic")
    if not config.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors: must name at least one of uniform and range")


def _check_together(config: BrokerConfig) -> None:
    """Check settings against each other. Raises ConfigError."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            f"group.min.session.timeout.ms = {config.group_min_session_timeout_ms}: must be at most "
            f"group.max.session.timeout.ms, which is {config.group_max_session_timeout_ms}"
        )
    _check_consumer_groups(config)
    if config.message_max_bytes > config.socket_request_max_bytes:
        raise ConfigError(
            f"message.max.bytes = {config.message_max_bytes}: must be at most socket.request.max.bytes, "
            f"which is {config.socket_request_max_bytes}"
        )
    metrics_address(config)
    if config.authorizer_class_name not in ("", *AUTHORIZERS):
        raise ConfigError(
            f"authorizer.class.name = {config.authorizer_class_name}: must be empty or {AUTHORIZERS[0]}, "
            "which is the only authorizer"
        )
    if config.replica_selector_class not in ("", *REPLICA_SELECTORS):
        raise ConfigError(
            f"replica.selector.class = {config.replica_selector_class}: must be empty, {' or '.join(REPLICA_SELECTORS)}"
        )
    for name in config.super_user_names:
        if not all(name.partition(":")):
            raise ConfigError(f"super.users = {config.super_users}: must be principals, such as User:alice;User:bob")
    if not config.has_authorizer:
        given = {
            "super.users": config.super_users,
            "allow.everyone.if.no.acl.found": config.allow_everyone_if_no_acl_found,
        }
        for name in (name for name, value in given.items() if value):
            raise ConfigError(f"{name} is given without authorizer.class.name = {AUTHORIZERS[0]}; give both")
    if config.audit_log_file.startswith(f"{config.log_dir.rstrip('/')}/"):
        raise ConfigError(
            f"audit.log.file = {config.audit_log_file}: must not be in log.dir, which is {config.log_dir}; give "
            "another directory"
        )
    if config.audit_log_required and not config.audit_log_file:
        raise ConfigError("audit.log.required is given without audit.log.file; give both")
    _check_listeners(config)
    _check_peers(config)
    _check_etcd(config)


def _check_etcd(config: BrokerConfig) -> None:
    """Check the settings of etcd. Raises ConfigError."""
    for url in config.etcd_endpoints:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"etcd.endpoints = {url}: must be URLs, such as http://127.0.0.1:2379")
    given_tls = [name for name in BROKER_SETTINGS if name.startswith("etcd.tls.") and config.given.get(name)]
    if given_tls and not any(url.startswith("https://") for url in config.etcd_endpoints):
        raise ConfigError(f"{given_tls[0]} is given, but etcd.endpoints has no URL with https://")
    if config.etcd_tls_key_file and not config.etcd_tls_certificate_file:
        raise ConfigError("etcd.tls.key.file is given without etcd.tls.certificate.file; give both")
    if bool(config.etcd_user) != bool(config.etcd_password):
        raise ConfigError("give etcd.user and etcd.password together, or neither")
    if config.etcd_user and not config.etcd_endpoints:
        raise ConfigError("etcd.user is given, but etcd.endpoints is not")


def _check_listeners(config: BrokerConfig) -> None:
    """Raise ConfigError."""
    for listener in config.client_listeners:
        if listener.has_tls:
            config.tls_of(listener.name)
        if listener.has_sasl:
            config.sasl_of(listener)


def _check_peers(config: BrokerConfig) -> None:
    """Check the listener for other brokers. Raises ConfigError."""
    listener = config.peer_listener
    for name in config.broker_principal_names:
        if not all(name.partition(":")):
            raise ConfigError(
                f"broker.principals = {config.broker_principals}: must be principals, such as User:CN=broker-1,O=semel"
            )
    if not listener.has_tls:
        if config.broker_principals:
            raise ConfigError(
                "broker.principals is given, and the listener for brokers has no TLS: set "
                "security.inter.broker.protocol=SSL, or the protocol SSL for inter.broker.listener.name"
            )
        return
    config.tls_of(listener.name)
    if not config.broker_principals:
        raise ConfigError(
            f"listener {listener.name} is for brokers, and broker.principals is empty: give the principals of the "
            "brokers' certificates, such as User:CN=broker-1,O=semel;User:CN=broker-2,O=semel"
        )
    if not config.is_clustered:
        config.warnings.append(f"listener {listener.name} is for other brokers, and there is no etcd.endpoints")
