"""The client's settings in words, taken from the declarations in `semel._config`, for docs/client-settings.md."""

from __future__ import annotations

import msgspec
from semel._config.client import AdminConfig, ClientConfig, DriverConfig, TransactionGroupConfig
from semel._config.consumer import ConsumerConfig
from semel._config.producer import ProducerConfig
from semel._config.settings import DeclaredSetting, settings_of
from semel.batch_reader import BatchReaderConfig

GROUPED_FROM = 10_000
"""A default has commas between its thousands from here on."""

SECTIONS: dict[str, tuple[type[ClientConfig], ...]] = {
    "Every client": (ClientConfig,),
    "Producer": (ProducerConfig,),
    "Consumer": (ConsumerConfig,),
    "Admin": (AdminConfig,),
    "BatchReader": (BatchReaderConfig,),
    "TransactionGroup": (DriverConfig, TransactionGroupConfig),
}
"""Title -> the configs whose own settings it has."""


def described() -> dict[str, list[DeclaredSetting]]:
    """Title of a section -> the settings that its configs add to those of their bases."""
    return {title: [each for config in configs for each in _own(config)] for title, configs in SECTIONS.items()}


def _own(config: type[ClientConfig]) -> list[DeclaredSetting]:
    inherited = getattr(config.__base__, "__struct_fields__", ())
    return [each for each in settings_of(config).values() if each.name not in inherited]


def part() -> str:
    """The tables of all settings, one for each class."""
    lines = []
    for title, settings in described().items():
        lines += [f"## {title}", ""]
        if title != "Every client":
            lines += ["The settings of [every client](#every-client)" + (", and:" if settings else ".") + "", ""]
        if settings:
            lines += ["| setting | default | what it does, and what it may be |", "|---|---|---|"]
            lines += [f"| `{each.name}` | {_default(each)} | {_cell(each.explanation)} |" for each in settings]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _default(setting: DeclaredSetting) -> str:
    value = setting.default
    if value is msgspec.NODEFAULT:
        return "must be given"
    is_large = type(value) is int and value >= GROUPED_FROM
    return f"`{value:,}`" if is_large else f"`{_cell(repr(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
