"""Drivers in processes of their own, for tests that kill them; each runs one query per fault point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from pipeline.fault_points import arm, arrived, wait_for
from pipeline.queries import QueryCase

FILES = 2


def environment() -> dict[str, str]:
    """Return the environment for a process with the import path of this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class QueryFault(NamedTuple):
    """A fault of one query: its point, batch and action."""

    point: str
    batch: int
    action: str


class FaultyQuery(NamedTuple):
    """A query and its fault."""

    case: QueryCase
    fault: QueryFault

    @property
    def arrived(self) -> int | None:
        """The id of the process that has executed the fault."""
        return arrived(self.case.points, *self.fault)


def faulty_queries(folder: Path, address: str, faults: list[QueryFault]) -> list[FaultyQuery]:
    """Create a query with input files for each fault, and arm the faults."""
    queries = []
    for fault in faults:
        case = QueryCase(folder / "-".join(map(str, fault)), address)
        for number in range(FILES):
            case.add_file(number)
        arm(case.points, *fault)
        queries.append(FaultyQuery(case, fault))
    return queries


class PipelineDriver:
    """One driver and its child processes. `with` kills it at the end."""

    def __init__(self, address: str, queries: list[FaultyQuery], master: str = "local[6,4]") -> None:
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

    def __enter__(self) -> PipelineDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver and its process group with Java. Python workers have groups of their own."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()

    def until_all_arrived(self) -> None:
        for each in self.queries:
            wait_for(lambda each=each: each.arrived or self._is_dead(), f"{each.case.name}\n{self._log_tail()}", 400)
        assert not self._is_dead(), self._log_tail()

    def release(self) -> None:
        """Release the held processes."""
        for each in self.queries:
            (each.case.points / "go").touch()

    def until_ended(self, query: FaultyQuery) -> str:
        """Return the error text of the query, "" without an error."""
        path = query.case.folder / "ended"
        wait_for(lambda: path.exists() or self._is_dead(), f"the end of {query.case.name}", 400)
        assert path.exists(), self._log_tail()
        return path.read_text()

    def until_all_ended(self) -> dict[str, str]:
        """Return the error texts of all queries, by fault point."""
        return {each.fault.point: self.until_ended(each) for each in self.queries}

    def _is_dead(self) -> bool:
        return self.process.poll() is not None

    def _log_tail(self) -> str:
        return self.log.read_text()[-3000:]
