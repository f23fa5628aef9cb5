"""Scrapes a broker in the test's process, and reads the page with Prometheus' own parser."""

from __future__ import annotations

from broker.harness import Harness
from prometheus_client.parser import text_string_to_metric_families
from semel_broker.metrics.exporter import Exporter

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scraper:
    """Scrapes of one broker: `value` of the last one, `moved` since the one before."""

    def __init__(self, broker: Harness) -> None:
        assert broker.node is not None
        self.exporter = Exporter(broker.node)
        self.last: Series = {}
        self.before: Series = {}

    async def scrape(self) -> Scraper:
        self.before, self.last = self.last, series_of((await self.exporter.text()).decode())
        return self

    def value(self, name: str, **labels: str) -> float | None:
        """The value of `semel_<name>` with exactly these labels; None: there is no such series."""
        return self.last.get((f"semel_{name}", tuple(sorted(labels.items()))))

    def moved(self, name: str, **labels: str) -> float:
        """The difference of the series between the last two scrapes."""
        key = (f"semel_{name}", tuple(sorted(labels.items())))
        return self.last.get(key, 0) - self.before.get(key, 0)

    def of(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """All series of `semel_<name>`."""
        return {labels: value for (found, labels), value in self.last.items() if found == f"semel_{name}"}


def series_of(text: str) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
