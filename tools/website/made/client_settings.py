"""The client's settings in words, taken from the declarations in `semel._config`.

They become the tables of docs/client-settings.md, and the texts that `help(semel.Producer)` and its like show.
`python -m tools.website.made.client_settings` writes the texts.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import msgspec
from semel._config.settings import RULES

from tools.website import ROOT

MODULE = ROOT / "client/semel/_config/reference.py"
CLIENT, CONSUMER, READER = (
    ROOT / "client/semel" / path for path in ("_config/client.py", "_config/consumer.py", "batch_reader.py")
)
WIDTH = 100


class DeclaredSetting(msgspec.Struct, frozen=True):
    """One declared setting, as source text. `default`: "" for a setting that has to be given."""

    name: str
    kind: str
    default: str
    words: str


class Section(msgspec.Struct, frozen=True):
    """The settings that one struct declares. `config`: its name."""

    title: str
    config: str
    path: Path


SECTIONS = (
    Section("Every client", "ClientConfig", CLIENT),
    Section("Producer", "ProducerConfig", CLIENT),
    Section("Consumer", "ConsumerConfig", CONSUMER),
    Section("Admin", "AdminConfig", CLIENT),
    Section("BatchReader", "BatchReaderConfig", READER),
    Section("TransactionGroup", "DriverConfig", CLIENT),
    Section("TransactionGroup", "TransactionGroupConfig", CLIENT),
)


def declared(section: Section) -> list[DeclaredSetting]:
    """The settings that the class itself declares, in their order."""
    tree = ast.parse(section.path.read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == section.config)
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        words = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            words = " ".join(after.value.value.split())
        default = "" if node.value is None else ast.unparse(node.value)
        found.append(DeclaredSetting(node.target.id, ast.unparse(node.annotation), default, words))
    return found


def described() -> dict[str, list[DeclaredSetting]]:
    """Name of a struct -> the settings that it declares. A setting of the BatchReader without words has the
    consumer's."""
    found = {section.config: declared(section) for section in SECTIONS}
    words = {setting.name: setting.words for setting in found["ConsumerConfig"]}
    found["BatchReaderConfig"] = [
        setting if setting.words else msgspec.structs.replace(setting, words=words[setting.name])
        for setting in found["BatchReaderConfig"]
    ]
    return found


def part() -> str:
    """The tables of all settings, one for each class."""
    known = described()
    lines = []
    titles: dict[str, list[DeclaredSetting]] = {}
    for section in SECTIONS:
        titles.setdefault(section.title, []).extend(known[section.config])
    for title, settings in titles.items():
        lines += [f"## {title}", ""]
        if title != "Every client":
            lines += ["The settings of [every client](#every-client)" + (", and:" if settings else ".") + "", ""]
        if settings:
            lines += ["| setting | default | what it does, and what it may be |", "|---|---|---|"]
            lines += [
                f"| `{each.name}` | {_shown(each.default)} | {_cell(f'{each.words} {_allowed(each)}')} |"
                for each in settings
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _shown(default: str) -> str:
    if not default:
        return "must be given"
    return f"`{int(default):,}`" if default.isdigit() and int(default) >= 10_000 else f"`{_cell(default)}`"


def _allowed(setting: DeclaredSetting) -> str:
    return f"Must be {RULES[setting.name].kind}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference() -> str:
    """The module that holds the texts for `help`."""
    lines = [
        '"""The settings of each struct in words, for `help`. Written by `make map` from the declarations."""',
        "",
        "from typing import Final",
        "",
        "SETTINGS: Final = {",
    ]
    for config, settings in described().items():
        if settings:
            lines += [f'    "{config}": """\\', "\n".join(map(_help, settings)), '""",']
    return (
        "\n".join([*lines, "}", '"""Name of the struct -> a paragraph for each setting that it declares itself."""'])
        + "\n"
    )


def _help(setting: DeclaredSetting) -> str:
    default = f" (default: {setting.default})" if setting.default else ""
    words = f"{setting.words} {_allowed(setting)}"
    body = textwrap.fill(words, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return f"{setting.name}{default}\n{body}"


if __name__ == "__main__":
    MODULE.write_text(reference())
