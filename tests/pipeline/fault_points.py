"""A sink with faults at named points of a batch, for tests: the Spark format "semel-fault-points".

Besides the sink's options it has `fault.folder`: a file `<point>@<batch>.<action>` in it arms a point. The first
process at the point renames the file to `<point>@<batch>.<action>.<process id>` and executes the action:

    hold    waits for a file `go`, or until it is killed
    raise   raises an error
    exit    ends the process at once
    stop    stops the process (SIGSTOP) until SIGCONT
    unlog   removes the folder in which Spark logs the commit of the batch, so that the query ends there

The outcome of a task's write is in `task@<batch>.<process id>.<attempt>`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType
from pyspark_semel.sink import batches as sink_batches
from pyspark_semel.sink import sink

POINTS = ("after-begin", "in-write", "after-prepare", "before-decide", "mid-completion", "after-decide")
FORMAT = "semel-fault-points"
FOLDER = "fault.folder"


class InjectedError(RuntimeError):
    """The error that a test injects."""


def arrive(folder: Path, point: str, batch: int) -> None:
    """Execute the armed action of the point, once."""
    for action in ("hold", "raise", "exit", "stop", "unlog"):
        armed = folder / f"{point}@{batch}.{action}"
        try:
            armed.rename(f"{armed}.{os.getpid()}")
        except FileNotFoundError:
            continue
        if action == "raise":
            raise InjectedError(f"injected fault at {point} of batch {batch}")
        if action == "exit":
            os._exit(1)
        if action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if action == "unlog":
            commits = folder.parent / "checkpoint" / "commits"
            commits.rename(commits.with_name("unlogged"))
            commits.touch()
        parent = os.getppid()
        while action == "hold" and not (folder / "go").exists():
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(0.02)  # held until the test creates the file


class FaultPointWriter(sink.StreamWriter):
    """A writer that reaches every fault point of a batch."""

    folder: Path

    def __getstate__(self) -> dict[str, Any]:
        first = self._step is None
        state = super().__getstate__()
        if first and self._step is not None:
            last = self._step.decided_token
            arrive(self.folder, "after-begin", 0 if last is None else int(last.rpartition(":")[2]) + 1)
        return state

    def write(self, iterator: Iterator[pa.RecordBatch]) -> sink.Written:
        sink_batches.CHUNK_BYTES = 1  # each Arrow batch is sent by itself
        batch = sink._query_and_batch()[1]
        context = TaskContext.get()
        assert context is not None
        said = self.folder / f"task@{batch}.{os.getpid()}.{context.taskAttemptId()}"
        try:
            written = super().write(self._in_halves(iterator, batch))
        except Exception as error:
            said.write_text(f"{type(error).__name__}: {error}")
            raise
        said.write_text("written")
        if written.rows:
            arrive(self.folder, "after-prepare", batch)
        return written

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        arrive(self.folder, "before-decide", batchId)
        failed: list[BaseException] = []

        def decide() -> None:
            try:
                super(FaultPointWriter, self).commit(messages, batchId)
            except BaseException as error:
                failed.append(error)

        deciding = threading.Thread(target=decide)
        deciding.start()
        arrive(self.folder, "mid-completion", batchId)
        deciding.join()
        if failed:
            raise failed[0]
        arrive(self.folder, "after-decide", batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        (self.folder / f"aborted@{batchId}").touch()
        super().abort(messages, batchId)

    def _in_halves(self, batches: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
        for each in batches:
            half = each.num_rows // 2
            if half:
                yield each.slice(0, half)
            arrive(self.folder, "in-write", batch)
            yield each.slice(half)


class FaultPointSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = {name: value for name, value in self.options.items() if name != FOLDER}
        made = sink.stream_writer(options, schema, overwrite)
        writer = FaultPointWriter(made._options, made._schema)
        writer.folder = Path(self.options[FOLDER])
        return writer


def arm(folder: Path, point: str, batch: int, action: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{point}@{batch}.{action}").touch()


def arrived(folder: Path, point: str, batch: int, action: str) -> int | None:
    """Return the id of the process that has executed the action."""
    found = list(folder.glob(f"{point}@{batch}.{action}.*"))
    return int(found[0].suffix[1:]) if found else None


def wait_for(what: Any, why: str, timeout_s: float = 90) -> Any:
    """Return the first true result of `what()`."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s} s for {why}")


def path_for_workers() -> None:
    """Give Spark's Python processes the import path of this process."""
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
