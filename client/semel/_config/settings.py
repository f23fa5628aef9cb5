"""PURE. One table of allowed values for each setting, and the refused settings of other clients by name.

`ClientConfig` and its subclasses call `check_settings` when they are created. `own_settings` runs before, because
aiokafka's classes have settings that semel does not have. Bounds are Kafka's: a number in a request fits its field.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
import math
import ssl
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, cast

import msgspec
from semel_protocol.visible import shown

from semel._assignment.assignors import Assignor, assignors_of
from semel._edge import Edge
from semel.errors import KafkaConfigurationError
from semel.structs import GroupStep

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., None])

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
TEXT_BYTES_MAX = 32_767
"""The largest string of the protocol, in bytes."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CODECS = (None, "none", "gzip", "snappy", "lz4", "zstd")
NO_KERBEROS = f"GSSAPI (Kerberos) is not supported: use one of {', '.join(MECHANISMS)}"


class Rule(msgspec.Struct, frozen=True):
    """The allowed values of one setting. `accepts` checks a value, `kind` describes the allowed ones."""

    kind: str
    accepts: Callable[[Any], bool]
    is_secret: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise KafkaConfigurationError with the name of the setting and the allowed values."""
        if not self.accepts(value):
            given = name if self.is_secret else f"{name}={shown(value)}"
            raise KafkaConfigurationError(f"{given}: give {self.kind}")


def _whole(least: int, most: int = INT32_MAX, *, none: str = "") -> Rule:
    """none: the meaning of None, where it is allowed."""

    def accepts(value: Any) -> bool:
        return (value is None and bool(none)) or (type(value) is int and least <= value <= most)

    return Rule(f"a whole number from {least} to {most}{f', or None for {none}' if none else ''}", accepts)


def _number(least: float, most: float) -> Rule:
    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and least <= value <= most

    return Rule(f"a number from {least} to {most}", accepts)


def _one_of(*allowed: object) -> Rule:
    """The type must match too: True is not 1."""

    def accepts(value: Any) -> bool:
        return any(type(value) is type(each) and value == each for each in allowed)

    return Rule(f"one of {', '.join(map(repr, allowed))}", accepts)


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        return len(value.encode()) <= TEXT_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _is_assignors(value: Any) -> bool:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        return False
    return all(isinstance(each, str | Assignor) or _is_assignor_class(each) for each in listed)


def _is_assignor_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Assignor)


def _is_provider(value: object) -> bool:
    return value is None or (not isinstance(value, type) and callable(getattr(value, "token", None)))


def _a(kind: str, expected: type) -> Rule:
    return Rule(f"{kind}, or None", lambda value: value is None or isinstance(value, expected))


_FLAG = _one_of(True, False)
_TEXT = Rule(f"a str of at most {TEXT_BYTES_MAX} bytes", _is_text)
_TEXT_OR_NONE = Rule(f"a str of at most {TEXT_BYTES_MAX} bytes, or None", lambda v: v is None or _is_text(v))
_SECRET_OR_NONE = Rule("a str, or None", lambda v: v is None or _is_text(v), is_secret=True)
_CALLABLE = Rule("a function, or None", lambda value: value is None or callable(value))

RULES: dict[str, Rule] = {
    # every client
    "bootstrap_servers": Rule(
        "host:port as a str, several with commas, or a list of them",
        lambda value: not isinstance(value, bytes | bytearray | Mapping) and hasattr(value, "__iter__"),
    ),
    "client_id": _TEXT,
    "request_timeout_ms": _whole(1),
    "bootstrap_timeout_ms": _whole(0, INT64_MAX),
    "metadata_max_age_ms": _whole(1, INT64_MAX),
    "retry_backoff_ms": _whole(0, INT64_MAX),
    "retry_backoff_max_ms": _whole(0, INT64_MAX),
    "reconnect_backoff_ms": _whole(0, INT64_MAX),
    "reconnect_backoff_max_ms": _whole(0, INT64_MAX),
    "connections_max_idle_ms": _whole(1, INT64_MAX, none="never"),
    "max_block_ms": _whole(0, INT64_MAX),
    "receive_frame_bytes_max": _whole(1),
    "security_protocol": _one_of(*PROTOCOLS),
    "ssl_context": _a("an ssl.SSLContext", ssl.SSLContext),
    "ssl_cafile": _TEXT_OR_NONE,
    "ssl_certfile": _TEXT_OR_NONE,
    "ssl_keyfile": _TEXT_OR_NONE,
    "ssl_password": _SECRET_OR_NONE,
    "ssl_check_hostname": _FLAG,
    "sasl_mechanism": _one_of(*MECHANISMS),
    "sasl_plain_username": _TEXT_OR_NONE,
    "sasl_plain_password": _SECRET_OR_NONE,
    "sasl_oauth_token_provider": Rule(
        "an object with `async def token(self) -> str`, or None", _is_provider, is_secret=True
    ),
    "edge": _a("an Edge", Edge),
    # Producer
    "acks": _one_of(0, 1, -1, "all"),
    "enable_idempotence": _FLAG,
    "transactional_id": _TEXT_OR_NONE,
    "transaction_timeout_ms": _whole(1),
    "transaction_group_step": _a("a GroupStep, which TransactionGroup.begin() returns", GroupStep),
    "key_serializer": _CALLABLE,
    "value_serializer": _CALLABLE,
    "compression_type": _one_of(*CODECS),
    "max_batch_size": _whole(1),
    "linger_ms": _number(0, INT64_MAX),
    "partitioner": _CALLABLE,
    "max_request_size": _whole(1),
    "buffer_memory": _whole(1, INT64_MAX),
    "delivery_timeout_ms": _whole(0),
    "max_in_flight_requests_per_connection": _whole(1),
    # Consumer, and partly BatchReader
    "group_id": _TEXT_OR_NONE,
    "group_instance_id": _TEXT_OR_NONE,
    "group_protocol": _one_of("classic", "consumer"),
    "group_remote_assignor": _TEXT_OR_NONE,
    "key_deserializer": _CALLABLE,
    "value_deserializer": _CALLABLE,
    "auto_offset_reset": _one_of("latest", "earliest", "none"),
    "enable_auto_commit": _FLAG,
    "auto_commit_interval_ms": _whole(1),
    "max_poll_records": _whole(1, none="all that is there"),
    "max_poll_interval_ms": _whole(1),
    "session_timeout_ms": _whole(1),
    "heartbeat_interval_ms": _whole(1),
    "rebalance_timeout_ms": _whole(1, none="max_poll_interval_ms"),
    "partition_assignment_strategy": Rule("names of assignors, or assignors of this package", _is_assignors),
    "fetch_min_bytes": _whole(0),
    "fetch_max_bytes": _whole(1),
    "fetch_max_wait_ms": _whole(0),
    "max_partition_fetch_bytes": _whole(1),
    "fetch_buffer_bytes": _whole(1, INT64_MAX),
    "isolation_level": _one_of("read_uncommitted", "read_committed"),
    "check_crcs": _FLAG,
    "exclude_internal_topics": _FLAG,
    "allow_auto_create_topics": _FLAG,
    "client_rack": _TEXT,
    "default_api_timeout_ms": _whole(1),
    "consumer_timeout_ms": _whole(0, none="the same, as it has no effect"),
    # TransactionGroup
    "name": _TEXT,
    "owner": _TEXT,
    "timeout_ms": _whole(1),
}
"""Every setting of every client. The same name has the same meaning everywhere."""


def check_settings(config: msgspec.Struct) -> None:
    """Check each setting by itself. Raises KafkaConfigurationError for the first invalid one."""
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if name == "sasl_mechanism" and value == "GSSAPI":
            raise KafkaConfigurationError(f"{name}={shown(value)}: {NO_KERBEROS}")
        RULES[name].check(name, value)
        if name == "partition_assignment_strategy":
            try:
                assignors_of(value)
            except ValueError as e:
                raise KafkaConfigurationError(str(e)) from None


class Foreign(msgspec.Struct, frozen=True):
    """A setting of another client that semel does not have.

    harmless: values without effect, such as aiokafka's defaults; they are accepted. Others are refused with `why`.
    """

    why: str
    harmless: tuple[object, ...] = (None,)
    is_secret: bool = False

    def refuse(self, name: str, value: object) -> None:
        """Raise KafkaConfigurationError unless the value has no effect."""
        if not any(type(value) is type(each) and value == each for each in self.harmless):
            raise KafkaConfigurationError(f"{name}{'' if self.is_secret else f'={shown(value)}'}: {self.why}")


FOREIGN: dict[str, Foreign] = {
    "loop": Foreign("the client uses the event loop that runs when it starts: leave it out"),
    "api_version": Foreign("versions are negotiated with each broker: leave it out", (None, "auto")),
    "sasl_kerberos_service_name": Foreign(NO_KERBEROS, (None, "kafka")),
    "sasl_kerberos_domain_name": Foreign(NO_KERBEROS),
}
"""By name; they are aiokafka's."""

DEFAULT_AT_NONE = ("client_id", "client_rack", "sasl_mechanism")
"""Settings where aiokafka's None stands for the default."""


def made(config: Callable[..., C], given: Mapping[str, Any], positional: Sequence[object] = ()) -> C:
    """The struct `config` of these keyword arguments, checked.

    Raises TypeError for a setting that is unknown or given without its name, KafkaConfigurationError for invalid or
    contradicting values.
    """
    name = getattr(config, "__name__", "").removesuffix("Config")
    parameters = _parameters_of(config)
    own = own_settings(given)
    for unknown in own:
        if unknown not in parameters:
            near = difflib.get_close_matches(unknown, parameters, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "docs/client-settings.md has the list"
            raise TypeError(f"{name} has no setting {unknown!r}: {advice}")
    unnamed = sum(each.kind is not each.KEYWORD_ONLY for each in parameters.values())
    _refuse_unnamed(name, positional[unnamed:])
    return config(*positional, **own)


@functools.cache
def _parameters_of(config: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Read once for each config: msgspec makes a struct's signature anew each time, and some of it is never freed."""
    return inspect.signature(config).parameters


def named_only(init: F) -> F:
    """Make an `__init__` with keyword arguments only explain itself when it gets others. Raises TypeError."""

    @functools.wraps(init)
    def explained(self: object, *unnamed: object, **settings: Any) -> None:
        _refuse_unnamed(type(self).__name__, unnamed)
        init(self, **settings)

    return cast(F, explained)


def _refuse_unnamed(name: str, unnamed: Sequence[object]) -> None:
    if unnamed:
        raise TypeError(
            f"{name}: {shown(unnamed[0])} is given without a name: settings are keyword arguments, as in "
            f"{name}(bootstrap_servers='localhost:9092')"
        )


def own_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments without other clients' settings that have no effect.

    Raises KafkaConfigurationError for other clients' settings that would have an effect.
    """
    own: dict[str, Any] = {}
    for name, each in given.items():
        value = _plain(each)
        foreign = FOREIGN.get(name)
        if foreign is not None:
            if name != "loop" or not _is_running(value):
                foreign.refuse(name, value)
        elif value is not None or name not in DEFAULT_AT_NONE:
            own[name] = value
    return own


def _plain(value: Any) -> Any:
    """The text of a member of a `str` enumeration, with which applications name protocols and codecs."""
    return str(value.value) if isinstance(value, str) and isinstance(value, Enum) else value


def _is_running(loop: object) -> bool:
    try:
        return loop is asyncio.get_running_loop()
    except RuntimeError:
        return False
