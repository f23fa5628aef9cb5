"""PURE: the declaration of a setting as a field of a msgspec struct, and how text becomes its value.

Settings are fields of `BrokerSettings` and `TopicSettings`. The type and its bounds are msgspec's; `Doc` has the
documentation. The outside name is the field's with dots, which is Kafka's name (`log_segment_bytes` is
`log.segment.bytes`). The parser, the error messages and DescribeConfigs are derived from that declaration.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from semel_broker.config import setting_text
from semel_broker.config.kafka_names import instead

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# The bounded types that settings are declared with. An upper bound within 32 bits is what makes Kafka's type INT.
Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Bytes = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Millis = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Minutes = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Records = Annotated[int, Meta(ge=1, le=INT64_MAX)]
CompressionType = Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
GzipLevel = Literal[-1, 1, 2, 3, 4, 5, 6, 7, 8, 9]
Lz4Level = Annotated[int, Meta(ge=1, le=17)]
# Kafka goes up to 22. Above 10 a block of 128 KiB, which zstd takes in one go, holds up all others for 50 ms and more.
ZstdLevel = Annotated[int, Meta(ge=-131_072, le=10)]
CleanupPolicy = tuple[Literal["delete", "compact"], ...]
TimestampType = Literal["CreateTime", "LogAppendTime"]

UNITS: Final = ("ms", "minutes", "hours", "bytes", "ratio", "partitions", "size")


class ConfigError(Exception):
    """A setting that is refused. The message names the key, the value and the allowed values."""


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_READ: Final[dict[ConfigType, Callable[[str], object]]] = {
    ConfigType.BOOLEAN: setting_text.boolean,
    ConfigType.STRING: setting_text.plain,
    ConfigType.PASSWORD: setting_text.plain,
    ConfigType.INT: setting_text.whole_number,
    ConfigType.LONG: setting_text.whole_number,
    ConfigType.DOUBLE: setting_text.number,
    ConfigType.LIST: setting_text.elements,
}


NO_EFFECT: Final = "Has no effect. "
"""Begins the documentation of such a setting; `semel topic create` and `alter` look for it."""


class Doc(msgspec.Struct, frozen=True):
    """The documentation of a setting, and its relations to others.

    `dynamic`: it can be altered while the broker runs. `synonyms`: the settings, in order of precedence, that give the
    value if this one is not given. `fixed`: only the default is allowed, because another value would promise what this
    broker does not do; the text says why. `no_effect`: a setting of Kafka whose values can do no harm: any is taken and
    described, and the text says why nothing follows from it. `is_secret`: the value is never shown.
    """

    text: str
    dynamic: bool = False
    synonyms: tuple[str, ...] = ()
    fixed: bool = False
    no_effect: bool = False
    is_secret: bool = False


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
    def is_path(self) -> bool:
        """Whether the value names a file or a directory, whose name need not be UTF-8."""
        return self.name.endswith((".dir", ".file", ".location"))

    @property
    def default_text(self) -> str | None:
        """The default as Kafka describes it: an empty text is no default."""
        return _rendered(self.default) or (
            None if self.kind in (ConfigType.STRING, ConfigType.PASSWORD) else _rendered(self.default)
        )

    @property
    def documentation(self) -> str:
        """The effect of the setting, its unit, and the allowed values."""
        unit = f" Unit: {self.unit}." if self.unit in ("ms", "minutes", "hours", "bytes") else ""
        return f"{NO_EFFECT if self.doc.no_effect else ''}{self.doc.text}{unit} Must be {self.allowed}."

    def parse(self, raw: object) -> Any:
        """The value of `raw`: text as an environment variable or a request has it, or a value of TOML.

        Raises ConfigError naming the key, the value given and the range allowed.
        """
        value: object = raw
        if isinstance(raw, str):
            if not (self.is_path or setting_text.is_unicode(raw)):
                raise ConfigError(f"{self.name} = {raw!r}: must be Unicode text, encoded in UTF-8")
            try:
                value = _READ[self.kind](raw)
            except ValueError:
                raise self._refused(raw) from None
        elif self.kind is not ConfigType.BOOLEAN and isinstance(raw, bool):
            raise self._refused(raw)  # a bool is an int to Python, never to an operator
        try:
            converted = msgspec.convert(value, self.type, strict=True)
        except (msgspec.ValidationError, OverflowError):
            raise self._refused(raw) from None
        if self.doc.fixed and converted != self.default:
            raise self._refused(raw)
        return converted

    def _refused(self, raw: object) -> ConfigError:
        why = f". {self.doc.text}" if self.doc.fixed else ""
        shown = "a secret" if self.doc.is_secret else repr(raw)
        return ConfigError(f"{self.name} = {shown}: must be {self.allowed}{why}")

    def render(self, value: object) -> str | None:
        """The value as text; None if the setting has none."""
        return _rendered(value)


def _rendered(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(str, value))
        case float():
            return setting_text.text_of(value)
        case _:
            return str(value)


def settings_of(struct: type[msgspec.Struct]) -> dict[str, Setting]:
    """The settings that the fields of `struct` declare, by outside name, in order of declaration.

    Raises TypeError for metadata that is neither `Meta` nor `Doc`: it would have no effect, without a word.
    """
    hints = get_type_hints(struct, include_extras=True)
    found: dict[str, Setting] = {}
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        for metadata in _metadata(hint):
            if not isinstance(metadata, Meta | Doc):
                raise TypeError(f"{struct.__name__}.{field.name}: {metadata!r} is neither bounds (Meta) nor a Doc")
        doc = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Doc)), None)
        if doc is None:
            continue  # a field beside the settings, not one of them
        plain, bounds = _unwrapped(hint)
        kind = ConfigType.PASSWORD if doc.is_secret else _kind(plain, bounds)
        name = field.name.replace("_", ".")
        default = None if field.default is msgspec.NODEFAULT else field.default
        allowed = f"{_rendered(default)}" if doc.fixed else _allowed(plain, bounds, kind)
        found[name] = Setting(name, field.name, hint, default, doc, kind, allowed)
    return found


def _metadata(hint: Any) -> list[Any]:
    """All metadata of a hint, also of the types that it is made of."""
    own = list(hint.__metadata__) if get_origin(hint) is Annotated else []
    return own + [each for argument in get_args(hint) if argument not in own for each in _metadata(argument)]


def _unwrapped(hint: Any) -> tuple[Any, list[Meta]]:
    """The plain type inside `Annotated` and `| None`, and all bounds on the way to it."""
    if get_origin(hint) is Annotated:
        plain, bounds = _unwrapped(hint.__origin__)
        return plain, [*bounds, *(m for m in hint.__metadata__ if isinstance(m, Meta))]
    if get_origin(hint) in (Union, UnionType):
        return _unwrapped(next(arg for arg in get_args(hint) if arg is not NoneType))
    return hint, []


def _kind(plain: Any, bounds: list[Meta]) -> ConfigType:
    if get_origin(plain) is tuple:
        return ConfigType.LIST
    if get_origin(plain) is Literal and all(isinstance(each, int) for each in get_args(plain)):
        return ConfigType.INT
    if plain is int:
        is_int32 = any(bound.le is not None and bound.le <= INT32_MAX for bound in bounds)
        return ConfigType.INT if is_int32 else ConfigType.LONG
    return {bool: ConfigType.BOOLEAN, float: ConfigType.DOUBLE}.get(plain, ConfigType.STRING)


def _allowed(plain: Any, bounds: list[Meta], kind: ConfigType) -> str:
    """The words after "must be" in an error message."""
    if get_origin(plain) is Literal:
        return "one of " + ", ".join(map(str, get_args(plain)))
    match kind:
        case ConfigType.LIST:
            words = ", ".join(get_args(get_args(plain)[0]))
            return f"a comma-separated list{f' of {words}' if words else ''}"
        case ConfigType.BOOLEAN:
            return "true or false"
        case ConfigType.STRING | ConfigType.PASSWORD:
            return "text"
    low = max(bound.ge for bound in bounds if bound.ge is not None)
    high = min(bound.le for bound in bounds if bound.le is not None)
    return f"{'a number' if kind is ConfigType.DOUBLE else 'a whole number'} from {low} to {high}"


def unknown(name: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown key: for one of Kafka's, what to do; otherwise the most similar names."""
    if (why := instead(name)) is not None:
        return ConfigError(f"{name}: there is no such setting here; {why}")
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=0.8)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return ConfigError(f"{name}: there is no such setting{hint}")


def parse_all(raw: Mapping[str, object], declared: Mapping[str, Setting]) -> dict[str, Any]:
    """Parsed values by outside name. Raises ConfigError for the first key that is unknown or has a bad value."""
    parsed: dict[str, Any] = {}
    for name, value in raw.items():
        setting = declared.get(name)
        if setting is None:
            raise unknown(name, declared)
        parsed[name] = setting.parse(value)
    return parsed
