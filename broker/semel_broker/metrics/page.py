"""PURE: one answer to a scrape in Prometheus' text format: the series of all families, written as they are added.

The client library for Python needs nine times as long for the same text, which would hold the event loop for too long
(docs/decisions/0028). Tests read the pages with that library's parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from semel_storage.histogram import Histogram

from semel_broker.metrics.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Page:
    """`series_max`: of the families that are bounded; `dropped` counts those that were left out."""

    def __init__(self, series_max: int) -> None:
        self.dropped = 0
        self._left = series_max
        self._lines: dict[str, list[str]] = {}
        self._pushed: dict[str, Family] = {}
        self._of: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # names and values of the last labels
        self._text = ""  # written

    def add(self, family: Family, value: float, *labels: str) -> None:
        """Add one series: the value of a counter or gauge."""
        if family.is_bounded and not self._take(1):
            return
        of, name = (family.labels, labels), family.name
        if of != self._of:
            self._of, self._text = of, _braced(*of)
        lines = self._lines.get(name)
        if lines is None:
            lines = self._lines[name] = []
        lines.append(f"{name}{self._text} {value}\n")

    def add_pushed(self, family: Family, value: float, labels: Mapping[str, str]) -> None:
        """Add a series of a client. `family`: not of the table, and bounded; its series may differ in their labels."""
        if self._take(1):
            self._pushed.setdefault(family.name, family)
            text = _braced(tuple(labels), tuple(labels.values()))
            self._lines.setdefault(family.name, []).append(f"{family.name}{text} {value}\n")

    def add_histogram(self, family: Family, histogram: Histogram, *labels: str) -> None:
        """Add the series of one histogram."""
        lines = self._lines.setdefault(family.name, [])
        names = (*family.labels, "le")
        totals = list(accumulate(histogram.counts))
        for bound, total in zip(histogram.bounds, totals, strict=False):
            lines.append(f"{family.name}_bucket{_braced(names, (*labels, f'{float(bound)}'))} {total}\n")
        lines.append(f"{family.name}_bucket{_braced(names, (*labels, '+Inf'))} {totals[-1]}\n")
        own = _braced(family.labels, labels)
        lines.append(f"{family.name}_sum{own} {histogram.sum}\n{family.name}_count{own} {totals[-1]}\n")

    def chunks(self, families: Iterable[Family]) -> Iterable[bytes]:
        """The text of these families and of those of clients, one at a time; without families that have no series."""
        for family in (*families, *self._pushed.values()):
            if lines := self._lines.get(family.name):
                head = f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind.value}\n"
                yield (head + "".join(lines)).encode()

    def _take(self, count: int) -> bool:
        if self._left < count:
            self.dropped += count
            return False
        self._left -= count
        return True


def _braced(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)])
    return f"{{{pairs}}}"
