"""What a setting is: a typed, bounded, documented field of a msgspec struct, and how text becomes its value.

Settings are declared as struct fields (`config.BrokerSettings`, `topic_configs.TopicConfig`): the type and its bounds
are msgspec's, the sentence is `Doc`'s, and the name on the outside is the field's with dots, which makes it Kafka's
(`log_segment_bytes` is `log.segment.bytes`). Everything else - the parser, the error messages, DescribeConfigs - is
derived from that one declaration.
"""

import difflib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# The bounded types that settings are declared with. An upper bound within 32 bits is what makes Kafka's type INT.
Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Bytes = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Millis = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Minutes = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
CleanupPolicy = tuple[Literal["delete", "compact"], ...]
TimestampType = Literal["CreateTime", "LogAppendTime"]

BOOLEANS: Final = {"true": True, "false": False}
UNITS: Final = ("ms", "minutes", "hours", "bytes", "ratio", "partitions", "size")


class ConfigError(Exception):
    """A setting that cannot be: says which key, what was given and what is allowed."""


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Doc(msgspec.Struct, frozen=True):
    """What the type does not say about a setting: the sentence for people, and what derives from what.

    `dynamic`: may be altered while the broker runs. `synonyms`: other names, in order of precedence, that give the
    value when this one is not given.
    """

    text: str
    dynamic: bool = False
    synonyms: tuple[str, ...] = ()


class Setting(msgspec.Struct, frozen=True):
    """One setting, as derived from its field."""

    name: str
    field: str
    type: Any
    default: Any
    doc: Doc
    kind: ConfigType
    allowed: str

    @property
    def unit(self) -> str | None:
        """The unit of the value (`ms`, `bytes`, ...); units come last in Kafka's names."""
        return next((part for part in reversed(self.name.split(".")) if part in UNITS), None)

    @property
    def documentation(self) -> str:
        """What the setting does, in which unit, and what it may be."""
        unit = f" Unit: {self.unit}." if self.unit in ("ms", "minutes", "hours", "bytes") else ""
        return f"{self.doc.text}{unit} Must be {self.allowed}."

    def parse(self, raw: object) -> Any:
        """The value of `raw`: text as an environment variable or a request has it, or a value of TOML.

        Raises ConfigError naming the key, the value given and the range allowed.
        """
        value: object = raw
        if isinstance(raw, str):
            value = raw.strip().lower() if self.kind is ConfigType.BOOLEAN else raw.strip()
            if self.kind is ConfigType.LIST:
                value = [part.strip() for part in raw.split(",") if part.strip()]
            elif self.kind is ConfigType.BOOLEAN:
                if value not in BOOLEANS:
                    raise self._refused(raw)
                value = BOOLEANS[value]
        elif self.kind is not ConfigType.BOOLEAN and isinstance(raw, bool):
            raise self._refused(raw)  # a bool is an int to Python, never to an operator
        try:
            return msgspec.convert(value, self.type, strict=not isinstance(raw, str))
        except (msgspec.ValidationError, OverflowError):
            raise self._refused(raw) from None

    def _refused(self, raw: object) -> ConfigError:
        return ConfigError(f"{self.name} = {raw!r}: must be {self.allowed}")

    def render(self, value: object) -> str | None:
        """The value as the wire and people write it; None when the setting has none."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case list() | tuple():
                return ",".join(map(str, value))
            case _:
                return str(value)


def settings_of(struct: type[msgspec.Struct]) -> dict[str, Setting]:
    """The settings that the fields of `struct` declare, by outside name, in order of declaration."""
    hints = get_type_hints(struct, include_extras=True)
    found: dict[str, Setting] = {}
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        doc = next((m for m in metadata if isinstance(m, Doc)), None)
        if doc is None:
            continue  # a field beside the settings, not one of them
        base = get_args(hint)[0]
        limits = [m for m in metadata if isinstance(m, Meta)]
        name = field.name.replace("_", ".")
        kind = _kind(base, limits)
        default = None if field.default is msgspec.NODEFAULT else field.default
        found[name] = Setting(name, field.name, hint, default, doc, kind, _allowed(base, limits, kind))
    return found


def _kind(base: Any, limits: list[Meta]) -> ConfigType:
    if get_origin(base) in (Union, UnionType):  # an optional setting is of the kind of its value
        inner = next(arg for arg in get_args(base) if arg is not NoneType)
        if get_origin(inner) is Annotated:
            return _kind(get_args(inner)[0], [*limits, *(m for m in get_args(inner)[1:] if isinstance(m, Meta))])
        return _kind(inner, limits)
    if get_origin(base) is tuple:
        return ConfigType.LIST
    if base is int:
        return ConfigType.INT if any((m.le or INT64_MAX) <= INT32_MAX for m in limits) else ConfigType.LONG
    return {bool: ConfigType.BOOLEAN, float: ConfigType.DOUBLE}.get(base, ConfigType.STRING)


def _allowed(base: Any, limits: list[Meta], kind: ConfigType) -> str:
    """The words after "must be" in an error message."""
    if get_origin(base) in (Union, UnionType):
        inner = next(arg for arg in get_args(base) if arg is not NoneType)
        if get_origin(inner) is Annotated:
            return _allowed(
                get_args(inner)[0], [*limits, *(m for m in get_args(inner)[1:] if isinstance(m, Meta))], kind
            )
        return _allowed(inner, limits, kind)
    if get_origin(base) is Literal:
        return "one of " + ", ".join(map(str, get_args(base)))
    if kind is ConfigType.LIST:
        element = get_args(base)[0]
        return (
            f"a comma-separated list of {', '.join(get_args(element))}"
            if get_args(element)
            else "a comma-separated list"
        )
    if kind is ConfigType.BOOLEAN:
        return "true or false"
    if kind is ConfigType.STRING:
        return "text"
    low = max((m.ge for m in limits if m.ge is not None), default=None)
    high = min((m.le for m in limits if m.le is not None), default=None)
    noun = "a number" if kind is ConfigType.DOUBLE else "a whole number"
    if low is not None and high is not None:
        return f"{noun} from {low} to {high}"
    return noun if low is None else f"{noun} of at least {low}"


def unknown(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that nobody declared, with the nearest ones that somebody did."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return ConfigError(f"{name}: there is no such setting{hint}")


def parse_all(raw: Mapping[str, object], declared: Mapping[str, Setting]) -> dict[str, Any]:
    """Parsed values by outside name; raises ConfigError for the first key that is unknown or cannot be."""
    parsed: dict[str, Any] = {}
    for name, value in raw.items():
        setting = declared.get(name)
        if setting is None:
            raise unknown(name, declared)
        parsed[name] = setting.parse(value)
    return parsed
