"""One measured figure and its target."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    name: str
    value: float
    shown: str
    aim: str = ""
    met: bool | None = None


def per_second(name: str, value: float, least: float | None = None) -> Figure:
    """Records per second; `least` is the target."""
    aim = "" if least is None else f">= {least:,.0f}/s"
    return Figure(name, value, f"{value:,.0f}/s", aim, None if least is None else value >= least)


def ratio(name: str, value: float, least: float | None = None) -> Figure:
    """A speed relative to a reference."""
    aim = "" if least is None else f">= {least}x"
    return Figure(name, value, f"{value:.2f}x", aim, None if least is None else value >= least)


def at_most(name: str, value: float, unit: str, most: float | None = None, digits: int = 2) -> Figure:
    """A cost; smaller is better."""
    aim = "" if most is None else f"<= {most:g} {unit}"
    return Figure(name, value, f"{value:.{digits}f} {unit}", aim, None if most is None else value <= most)
