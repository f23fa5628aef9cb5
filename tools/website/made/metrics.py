"""The tables of docs/metrics.md, made of the families that the readers declare."""

from __future__ import annotations

from semel_broker.metrics.exporter import SECTIONS


def part() -> str:
    """The tables of all metrics, one for each section."""
    parts = []
    for section in SECTIONS:
        parts.append(f"\n### {section.name}\n\n| name | type | labels | what it is |\n|---|---|---|---|\n")
        for family in section.families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            parts.append(f"| `{family.name}` | {family.kind.value} | {labels} | {family.about} |\n")
    return "".join(parts)
