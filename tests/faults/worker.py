"""A client under faults: one process, one kind of work, until SIGTERM; what it does and sees goes into a journal.

`python -m faults.worker JSON`. Ends with status 0 when told to, with FENCED when a newer process has its transactional
id, with STUCK when its library does not come back, and with anything else only by mistake.
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
"""How long a call is waited for before it is made again."""
DELIVERY_TIMEOUT_MS = 90_000
LIFE_OPS = 400
"""After so many operations a client object is closed and a new one made."""

Kind = Literal["write", "append", "transform", "count"]
Library = Literal["semel", "confluent"]


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is.

    write: idempotent records to `source`. append: transactions over all of `topics`, some of them aborted.
    transform: each record of `source` becomes one of `target`, in transactions. count: a member of a group that reads
    `source` and commits.
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
    """Of `count`; `transform` always does."""
    pause_ms: float = 10.0
    """Mean time between two records, or two transactions."""


class WorkerRun(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a worker. `incarnation`: 1, 2, ... over all processes of its name."""

    plan: WorkerPlan
    incarnation: int
    bootstrap: str
    journal: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.plan.name}.{self.incarnation}"


class Job:
    """What the workers of both libraries share: who they are, chance, values that nobody else writes."""

    def __init__(self, run: WorkerRun, history: History) -> None:
        self.run, self.plan, self.history = run, run.plan, history
        self.rng = random.Random(f"{run.seed} {run.name}")
        self.log = logging.getLogger(run.name)
        self.is_stopping = False
        self._values = 0

    def value(self, made_from: str = "") -> str:
        """Unique in the whole run."""
        self._values += 1
        return f"{made_from}{'>' if made_from else ''}{self.run.name}-{self._values}"

    def partition(self) -> int:
        return self.rng.randrange(self.plan.partitions)

    def pause_s(self) -> float:
        return min(self.rng.expovariate(1 / self.plan.pause_ms), 10 * self.plan.pause_ms) / 1000


class Fenced(Exception):  # noqa: N818 (named for what it tells)
    """A newer process has the transactional id."""


class Stuck(Exception):  # noqa: N818 (named for what it tells)
    """The library waits for something that will not happen; another process goes on."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="WorkerRun as JSON")
    run = msgspec.json.decode(parser.parse_args().run, type=WorkerRun)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    from pathlib import Path

    from faults.journal import journal

    job = Job(run, journal(Path(run.journal)))
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
    except Stuck as error:
        job.log.warning("stuck: %s", error)
        os._exit(STUCK)  # at once: the library would wait for the same thing again


if __name__ == "__main__":
    from faults import worker  # by its name, so that its classes are those that others import

    worker.main()
