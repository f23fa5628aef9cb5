"""A round on one broker, as data drawn from a seed: the broker's settings, workers and faults. PURE.

Each seed draws the kinds of faults first. So some rounds have many faults of few kinds.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from sim.events import HistoryTopic, Pipeline

from faults.worker import SESSION_MS, TRANSACTION_TIMEOUT_MS, WorkerPlan

SOURCE = "source"
LISTS = ("list-a", "list-b")
PARTITIONS = 3
TOPICS = [HistoryTopic(name, PARTITIONS) for name in (SOURCE, *LISTS, "out-semel", "out-confluent")]
GAP_S = (0.1, 1.5)
"""Seconds between the end of a fault and the next fault: least and most."""
ROUND_S = (20.0, 45.0)
DISK_BYTES = 48 << 20
SERIAL = ("kill-broker", "terminate-broker", "pause-broker", "full-disk", "break-files")
"""Kinds of faults that end before the next fault begins; the others overlap."""


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault. `kind`: one of `KINDS`. `after_s`: seconds after the previous fault (after its end, if it is serial)."""

    kind: str
    after_s: float
    args: dict[str, Any] = {}

    def __str__(self) -> str:
        words = " ".join(f"{key}={value:.2f}" if isinstance(value, float) else f"{key}={value}"
                         for key, value in self.args.items())  # fmt: skip
        return f"{self.kind} {words}".strip()


class RoundPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One round. `duration_s`: of the faults, without the time for healing and reading."""

    seed: int
    duration_s: float
    settings: dict[str, str]
    workers: list[WorkerPlan]
    topics: list[HistoryTopic]
    pipelines: list[Pipeline]
    faults: list[PlannedFault]
    brokers: int = 1
    secure: bool = False
    """Three brokers with users over TLS, as deploy/docker-compose.secure.yml has them."""

    @property
    def groups(self) -> dict[str, None]:
        return {worker.group: None for worker in self.workers if worker.group}

    @property
    def needs_small_disk(self) -> bool:
        return any(fault.kind == "full-disk" for fault in self.faults)


def draw(seed: int, *, small_disk: bool, duration_s: float | None = None) -> RoundPlan:
    """The round of a seed. `small_disk`: whether this machine allows a `SmallDisk`."""
    rng = Random(seed)
    duration_s = rng.uniform(*ROUND_S) if duration_s is None else duration_s
    workers = draw_workers(rng)
    kinds = [kind for kind in KINDS if rng.random() < 0.5 and (small_disk or kind != "full-disk")]
    kinds = kinds or ["kill-broker"]
    settings = {
        "durability": rng.choice(("fsync", "os")),
        "transaction.version": rng.choice(("1", "2", "2")),
        "group.min.session.timeout.ms": "100",
        "group.initial.rebalance.delay.ms": "200",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transaction.state.log.num.partitions": "4",
        "offsets.topic.num.partitions": "4",
        "log.segment.bytes": rng.choice(("16384", "262144", "1073741824")),
        "log.index.interval.bytes": rng.choice(("64", "4096")),
        "log.flush.offset.checkpoint.interval.ms": rng.choice(("1000", "60000")),
    }
    return RoundPlan(
        seed=seed,
        duration_s=duration_s,
        settings=settings,
        workers=workers,
        topics=TOPICS,
        pipelines=draw_pipelines(workers),
        faults=list(_faults(rng, kinds, workers, duration_s)),
    )


def draw_pipelines(workers: list[WorkerPlan]) -> list[Pipeline]:
    """One pipeline for each group of transforming workers."""
    found = {worker.group: Pipeline(worker.group, worker.source, worker.target)
             for worker in workers if worker.kind == "transform"}  # fmt: skip
    return list(found.values())


def draw_workers(rng: Random) -> list[WorkerPlan]:
    """At least one writer and one pipeline. The other workers are drawn, so that a machine has not too many."""
    libraries: list[Any] = ["semel", "confluent"]
    workers = []
    writers = rng.sample(libraries, rng.randint(1, 2))
    for library in writers:
        workers.append(
            WorkerPlan(name=f"writer-{library}", kind="write", library=library, source=SOURCE, pause_ms=15.0)
        )
    for library in rng.sample(libraries, rng.randint(1, 2)):
        for number in range(rng.randint(1, 2)):
            workers.append(
                WorkerPlan(
                    name=f"pipe-{library}-{number}", kind="transform", library=library, source=SOURCE,
                    target=f"out-{library}", group=f"pipes-{library}", transactional_id=f"pipe-{library}-{number}",
                )
            )  # fmt: skip
    for library in rng.sample(libraries, rng.randint(0, 2)):
        workers.append(
            WorkerPlan(
                name=f"list-{library}", kind="append", library=library, topics=LISTS, pause_ms=30.0,
                transactional_id=f"list-{library}",
            )
        )  # fmt: skip
    for number, library in enumerate(rng.choices(libraries, k=rng.randint(0, 2))):
        read = rng.choice((SOURCE, LISTS[0], next(worker.target for worker in workers if worker.target)))
        workers.append(
            WorkerPlan(
                name=f"count-{number}-{library}", kind="count", library=library, source=read, group=f"count-{read}",
                read_committed=read != SOURCE,
            )
        )  # fmt: skip
    return workers


def _faults(rng: Random, kinds: list[str], workers: list[WorkerPlan], duration_s: float) -> Any:
    at_s = 1.0
    while at_s < duration_s:
        after_s = rng.uniform(*GAP_S)
        fault = PlannedFault(kind=(kind := rng.choice(kinds)), after_s=after_s, args=KINDS[kind](rng, workers))
        yield fault
        at_s += after_s + (fault.args.get("for_s", 0.5) if kind in SERIAL else 0.0)


def _pause_s(rng: Random) -> float:
    """The length of a pause: short, up to the session timeout, or two to three times the session timeout."""
    return rng.choice(
        (rng.uniform(0.05, 0.5), rng.uniform(0.5, SESSION_MS / 1000), rng.uniform(2, 3) * SESSION_MS / 1000)
    )


def _random_worker(rng: Random, workers: list[WorkerPlan]) -> str:
    return rng.choice(workers).name


def _worker_or_all(rng: Random, workers: list[WorkerPlan]) -> str:
    """A worker, or "" for all of them."""
    return rng.choice(("", _random_worker(rng, workers)))


def _frame(rng: Random, workers: list[WorkerPlan]) -> dict[str, Any]:
    worker = rng.choice(workers)
    return {"whom": worker.name, "api": rng.choice(APIS_OF[worker.kind])}


_AS_PRODUCER = ("EndTxn", "AddPartitionsToTxn", "Produce", "InitProducerId", "FindCoordinator")
_AS_MEMBER = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "Fetch", "OffsetFetch", "ListOffsets")
APIS_OF: dict[str, tuple[str, ...]] = {
    "write": ("Produce", "InitProducerId", "Metadata"),
    "append": _AS_PRODUCER,
    "transform": (*_AS_PRODUCER, "AddOffsetsToTxn", "TxnOffsetCommit", *_AS_MEMBER),
    "count": ("OffsetCommit", *_AS_MEMBER),
}
"""The APIs that each kind of worker uses: their frames can be held or lost."""
BREAKABLE = ("index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint", "recovery-point", "log-start")
"""Files that the broker can rebuild from the logs."""
KINDS: dict[str, Any] = {
    "kill-broker": lambda rng, workers: {"for_s": rng.choice((0.0, rng.uniform(0, 2), rng.uniform(2, 5)))},
    "terminate-broker": lambda rng, workers: {"for_s": rng.uniform(0, 1)},
    "pause-broker": lambda rng, workers: {"for_s": _pause_s(rng)},
    "kill-worker": lambda rng, workers: {"whom": _random_worker(rng, workers)},
    "pause-worker": lambda rng, workers: {
        "whom": _random_worker(rng, workers),
        "for_s": rng.choice((_pause_s(rng), rng.uniform(1, 2) * TRANSACTION_TIMEOUT_MS / 1000)),
        "replaced": rng.random() < 0.5,
    },
    "reset": lambda rng, workers: {"whom": _worker_or_all(rng, workers)},
    "part": lambda rng, workers: {
        "whom": _worker_or_all(rng, workers),
        "ways": rng.choice((["request"], ["answer"], ["request", "answer"])),
        "for_s": _pause_s(rng),
        "then": rng.choice(("join", "reset")),
    },
    "delay": lambda rng, workers: {"up_to_s": rng.choice((0.01, 0.1, 0.5)), "for_s": rng.uniform(1, 5)},
    "cut": lambda rng, workers: {"chance": rng.choice((0.002, 0.02)), "for_s": rng.uniform(1, 4)},
    "hold": lambda rng, workers: {
        **_frame(rng, workers),
        "way": rng.choice(("request", "request", "answer")),
        "for_s": rng.choice((rng.uniform(0.2, 2), rng.uniform(2.5, 6))),
    },
    "lose": lambda rng, workers: {**_frame(rng, workers), "way": rng.choice(("request", "answer"))},
    "full-disk": lambda rng, workers: {"for_s": rng.uniform(0.5, 3)},
    "break-files": lambda rng, workers: {
        "how": [
            (rng.choice(("delete", "empty", "truncate", "append", "flip")), rng.choice(BREAKABLE), rng.randrange(4096))
            for _ in range(rng.randint(1, 6))
        ],
        "tails": rng.randint(0, 2),
        "clean": rng.random() < 0.3,
    },
}  # fmt: skip
"""Each kind of fault, and how its arguments are drawn."""
