"""PURE. How a setting is declared, as a field of a config, and the refused settings of other clients by name.

    linger_ms: Annotated[float, number(0, INT64_MAX), Meaning("How long a batch may wait for more records.")] = 0

The checks, `help`, the tables of the documents and the options of the commands follow from this declaration. A `bool`,
a `str`, a `Literal` and a function have the rule of their type; any other type needs a `Rule`.

`ClientConfig` and its subclasses call `check_settings` when they are created. `own_settings` runs before, because
aiokafka's classes have settings that semel does not have. Bounds are Kafka's: a number in a request fits its field.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from semel_protocol.visible import shown

from semel._assignment.assignors import assignors_of
from semel.errors import KafkaConfigurationError

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., None])

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
TEXT_BYTES_MAX = 32_767
"""The largest string of the protocol, in bytes."""

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
NO_KERBEROS = f"GSSAPI (Kerberos) is not supported: use one of {', '.join(get_args(SaslMechanism))}"


class Meaning(msgspec.Struct, frozen=True):
    """What a setting does, in whole sentences."""

    text: str


class Rule(msgspec.Struct, frozen=True):
    """The allowed values of one setting. `accepts` checks a value, `kind` describes the allowed ones.

    is_secret: the value is never shown. is_object: a value is an object of Python, which no text stands for.
    """

    kind: str
    accepts: Callable[[Any], bool]
    is_secret: bool = False
    is_object: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise KafkaConfigurationError with the name of the setting and the allowed values."""
        if not self.accepts(value):
            given = name if self.is_secret else f"{name}={shown(value)}"
            raise KafkaConfigurationError(f"{given}: give {self.kind}")


def whole(least: int, most: int = INT32_MAX, *, none: str = "") -> Rule:
    """A whole number within bounds. none: the meaning of None, where it is allowed."""

    def accepts(value: Any) -> bool:
        return (value is None and bool(none)) or (type(value) is int and least <= value <= most)

    return Rule(f"a whole number from {least} to {most}{f', or None for {none}' if none else ''}", accepts)


def number(least: float, most: float) -> Rule:
    """A finite number within bounds."""

    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and least <= value <= most

    return Rule(f"a number from {least} to {most}", accepts)


def one_of(*allowed: object) -> Rule:
    """One of these values. The type must match too: True is not 1."""

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


def instance_of(kind: str, expected: type) -> Rule:
    """An object of this type, or None. kind: the type in words."""
    return Rule(f"{kind}, or None", lambda value: value is None or isinstance(value, expected), is_object=True)


TEXT = Rule(f"a str of at most {TEXT_BYTES_MAX} bytes", _is_text)
TEXT_OR_NONE = Rule(f"a str of at most {TEXT_BYTES_MAX} bytes, or None", lambda v: v is None or _is_text(v))
SECRET = Rule("a str, or None", lambda v: v is None or _is_text(v), is_secret=True)
FUNCTION = Rule("a function, or None", lambda value: value is None or callable(value), is_object=True)

Positive = Annotated[int, whole(1)]
PositiveLong = Annotated[int, whole(1, INT64_MAX)]
NotNegative = Annotated[int, whole(0)]
Long = Annotated[int, whole(0, INT64_MAX)]


class DeclaredSetting(msgspec.Struct, frozen=True):
    """One setting of a config, as derived from its field.

    type: without metadata. default: `msgspec.NODEFAULT` for a setting that must be given.
    """

    name: str
    type: Any
    default: Any
    rule: Rule
    meaning: str

    @property
    def explanation(self) -> str:
        """What it does, and what it may be."""
        return f"{self.meaning} Must be {self.rule.kind}."


@functools.cache
def settings_of(config: type[msgspec.Struct]) -> dict[str, DeclaredSetting]:
    """The settings that the fields of a config declare, by name, in order of declaration.

    Raises TypeError for metadata that is neither `Rule` nor `Meaning`, and for a field that lacks one of them.
    """
    hints = get_type_hints(config, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(config):
        hint, where = hints[field.name], f"{config.__name__}.{field.name}"
        plain, metadata = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
        if wrong := [each for each in metadata if not isinstance(each, Rule | Meaning)]:
            raise TypeError(f"{where}: {wrong[0]!r} is neither a Rule nor a Meaning")
        rule = next((each for each in metadata if isinstance(each, Rule)), None) or _rule_of(plain, where)
        meaning = next((each.text for each in metadata if isinstance(each, Meaning)), "")
        if not meaning:
            raise TypeError(f"{where}: say what it does, with a Meaning")
        found[field.name] = DeclaredSetting(field.name, plain, field.default, rule, meaning)
    return found


def _rule_of(plain: Any, where: str) -> Rule:
    """The rule of a type. Raises TypeError for a type that does not say which values are allowed."""
    origin, inner = get_origin(plain), get_args(plain)
    if origin in (Union, UnionType):
        kinds = [each for each in inner if each is not NoneType]
        if kinds == [str]:
            return TEXT_OR_NONE
        if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
            return one_of(None, *get_args(kinds[0]))
        if len(kinds) == 1 and get_origin(kinds[0]) is Callable:
            return FUNCTION
    elif origin is Literal:
        return one_of(*inner)
    elif plain in (bool, str):
        return one_of(True, False) if plain is bool else TEXT
    raise TypeError(f"{where}: {plain!r} does not say which values are allowed: add a Rule")


def check_settings(config: msgspec.Struct) -> None:
    """Check each setting by itself. Raises KafkaConfigurationError for the first invalid one."""
    for name, setting in settings_of(type(config)).items():
        value = getattr(config, name)
        if name == "sasl_mechanism" and value == "GSSAPI":
            raise KafkaConfigurationError(f"{name}={shown(value)}: {NO_KERBEROS}")
        setting.rule.check(name, value)
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
