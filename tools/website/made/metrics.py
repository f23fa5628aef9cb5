"""The tables of docs/metrics.md, made of the table of families."""

from __future__ import annotations

from itertools import groupby

from semel_broker.metrics.families import FAMILIES


def part() -> str:
    """The tables of all metrics, one for each section."""
    parts = []
    for section, families in groupby(FAMILIES, lambda family: family.section):
        parts.append(f"\n### {section}\n\n| name | type | labels | what it is |\n|---|---|---|---|\n")
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            parts.append(f"| `{family.name}` | {family.kind.value} | {labels} | {family.about} |\n")
    return "".join(parts)
