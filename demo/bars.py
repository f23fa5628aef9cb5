"""Shows progress on the terminal: one bar for each stage, and text lines above the bars."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """One bar for each named stage, each up to `total`; `show` is the context that draws them."""

    def __init__(self, console: Console, total: int, *stages: str) -> None:
        columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.show = Progress(*columns, console=console, refresh_per_second=8)
        self._ids: dict[str, TaskID] = {name: self.show.add_task(name, total=total) for name in stages}

    def add(self, name: str, total: int) -> None:
        """Add a stage with a total of its own."""
        self._ids[name] = self.show.add_task(name, total=total)

    def at(self, name: str, value: int) -> None:
        self.show.update(self._ids[name], completed=value)

    def say(self, text: str) -> None:
        self.show.console.print(text, highlight=False)
