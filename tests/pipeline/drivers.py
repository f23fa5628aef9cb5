"""Drivers in processes of their own, for tests that kill them; each runs a query for every point it is struck at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from pipeline.queries import Case
from pipeline.struck import arm, arrived, wait_for

FILES = 2


def environment() -> dict[str, str]:
    """For a process whose Python finds what this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Strike(NamedTuple):
    """What happens to one query, and where."""

    point: str
    batch: int
    deed: str


class Struck(NamedTuple):
    """A query, and what happens to it."""

    case: Case
    strike: Strike

    @property
    def arrived(self) -> int | None:
        """The process that took the blow."""
        return arrived(self.case.points, *self.strike)


def struck_queries(folder: Path, address: str, strikes: list[Strike]) -> list[Struck]:
    """A query for each, with files to write, armed."""
    queries = []
    for strike in strikes:
        case = Case(folder / "-".join(map(str, strike)), address)
        for number in range(FILES):
            case.add_file(number)
        arm(case.points, *strike)
        queries.append(Struck(case, strike))
    return queries


class Driver:
    """One driver, and all that it starts. `with` ends it at the latest."""

    def __init__(self, address: str, queries: list[Struck], master: str = "local[6,4]") -> None:
        self.queries = queries
        for each in queries:
            (each.case.folder / "ended").unlink(missing_ok=True)
        folders = [str(each.case.folder) for each in queries]
        self.log = queries[0].case.folder.parent / f"driver-{len(list(queries[0].case.folder.parent.glob('driver-*')))}"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.queries", master, address, *folders],
                env=environment(),
                start_new_session=True,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def signal(self, number: signal.Signals) -> None:
        """To the driver, its Java and what else is in their group. Python's workers are in groups of their own."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()

    def until_all_arrived(self) -> None:
        for each in self.queries:
            wait_for(lambda each=each: each.arrived or self._is_dead(), f"{each.case.name}\n{self._last_words()}", 400)
        assert not self._is_dead(), self._last_words()

    def release(self) -> None:
        """Those that are held go on."""
        for each in self.queries:
            (each.case.points / "go").touch()

    def until_ended(self, query: Struck) -> str:
        """What the query has ended with: nothing, or an error's words."""
        path = query.case.folder / "ended"
        wait_for(lambda: path.exists() or self._is_dead(), f"the end of {query.case.name}", 400)
        assert path.exists(), self._last_words()
        return path.read_text()

    def until_all_ended(self) -> dict[str, str]:
        """The same of each, by its point."""
        return {each.strike.point: self.until_ended(each) for each in self.queries}

    def _is_dead(self) -> bool:
        return self.process.poll() is not None

    def _last_words(self) -> str:
        return self.log.read_text()[-3000:]
