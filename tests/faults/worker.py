"""A worker process under faults: does one kind of work until SIGTERM, and writes each operation to a journal.

`python -m faults.worker JSON`. Exit status: 0 after SIGTERM; FENCED if a newer process has its transactional id; STUCK
if a call of its library does not return. Any other status is a bug.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
from typing import Literal

import msgspec
from sim.history import History

FENCED = 3
STUCK = 4
SESSION_MS = 2_000
TRANSACTION_TIMEOUT_MS = 4_000
REQUEST_TIMEOUT_MS = 2_500
PATIENCE_MS = 20_000
"""The timeout of a call. After it the call is repeated."""
DELIVERY_TIMEOUT_MS = 90_000
LIFE_OPS = 400
"""The number of operations after which a client object is closed and a new one created."""

Kind = Literal["write", "append", "transform", "count"]
Library = Literal["semel", "confluent"]


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a worker. Its `kind`:

    write: sends idempotent records to `source`. append: sends transactions to `topics`, and aborts some. transform:
    reads each record of `source` and writes one to `target`, in transactions. count: a member of a group that reads
    `source` and commits offsets.
    """

    name: str
    kind: Kind
    library: Library
    source: str = ""
    target: str = ""
    topics: tuple[str, ...] = ()
    partitions: int = 3
    group: str = ""
    transactional_id: str = ""
    read_committed: bool = False
    """For `count`; `transform` always reads committed records."""
    pause_ms: float = 10.0
    """The mean time between two records or two transactions."""


class WorkerRun(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a worker. `incarnation`: its number among the processes of this worker, from 1 on."""

    plan: WorkerPlan
    incarnation: int
    bootstrap: str
    journal: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.plan.name}.{self.incarnation}"


class WorkerJob:
    """The parts that workers of both libraries share: plan, history, random numbers, and unique values."""

    def __init__(self, run: WorkerRun, history: History) -> None:
        self.run, self.plan, self.history = run, run.plan, history
        self.rng = random.Random(f"{run.seed} {run.name}")
        self.log = logging.getLogger(run.name)
        self.is_stopping = False
        self._values = 0

    def value(self, made_from: str = "") -> str:
        """A value that is unique in the whole round. `made_from`: the value of the record that it is derived from."""
        self._values += 1
        return f"{made_from}{'>' if made_from else ''}{self.run.name}-{self._values}"

    def partition(self) -> int:
        return self.rng.randrange(self.plan.partitions)

    def pause_s(self) -> float:
        return min(self.rng.expovariate(1 / self.plan.pause_ms), 10 * self.plan.pause_ms) / 1000


class Fenced(Exception):  # noqa: N818 (it is an expected end of a worker)
    """A newer process has the transactional id."""


class CallStuckError(Exception):
    """A call of the library does not return. A new process continues the work."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="WorkerRun as JSON")
    run = msgspec.json.decode(parser.parse_args().run, type=WorkerRun)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    from pathlib import Path

    from faults.journal import journal

    job = WorkerJob(run, journal(Path(run.journal)))
    signal.signal(signal.SIGTERM, lambda number, frame: setattr(job, "is_stopping", True))
    try:
        if run.plan.library == "semel":
            from faults.worker_semel import SemelWorker

            asyncio.run(SemelWorker(job).work())
        else:
            from faults.worker_confluent import ConfluentWorker

            ConfluentWorker(job).work()
    except Fenced as error:
        job.log.warning("fenced: %s", error)
        sys.exit(FENCED)
    except CallStuckError as error:
        job.log.warning("stuck: %s", error)
        os._exit(STUCK)  # without cleanup: closing the client would wait for the same call


if __name__ == "__main__":
    from faults import worker  # under its name, so that its classes are those that other modules import

    worker.main()
