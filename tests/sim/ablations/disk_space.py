"""Safeguards of a disk that runs full: some space is reserved, so that a broker can continue, start and delete."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from scenarios.language import parse
from semel_broker.partitions.disk_space import DiskSpace

from sim.ablations.ablation import Seam, safeguard
from sim.control import Listener
from sim.disk import SimDisk
from sim.run import RunVerdict
from sim.scenarios.scenario_run import play

SCENARIOS = Path(__file__).parents[2] / "scenarios"


class FullDiskRun:
    """The scenarios of full disks, one after the other. They are no draws: each seed gives the same run."""

    about = "scenarios of full disks"
    faults = (
        "full_disk_amid_transaction",
        "full_disk_with_room_kept",
        "full_disk_keeps_room_to_delete",
        "starts_on_a_full_disk",
    )

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        self._listener = listener

    def judged(self) -> RunVerdict:
        """The verdict: a scenario whose expectation is not met is a failure."""
        failures, digest = [], ""
        for name in self.faults:
            scenario = parse(f"{name}.txt", (SCENARIOS / f"{name}.txt").read_text())
            with TemporaryDirectory() as directory:
                try:
                    digest = play(scenario, Path(directory), lambda text: None, self._listener).digest()
                except Exception as error:
                    failures.append(f"{name}: {str(error).splitlines()[0]}")
        return RunVerdict(seed=self.seed, digest=digest, failures=failures)


of_full_disks = partial(safeguard, alone=FullDiskRun)


@of_full_disks(
    "the mark of free disk", "a broker on a disk that other programs fill goes on: it refuses writes, and can delete"
)
def without_mark(seam: Seam) -> None:
    seam.replace(DiskSpace, "look", lambda self: None)


@of_full_disks(
    "the second mark of free disk",
    "while clients' writes are refused, groups, transactions and compaction leave room to delete",
)
def without_second_mark(seam: Seam) -> None:
    seam.replace(DiskSpace, "is_critical", property(lambda self: False))
    seam.replace(DiskSpace, "has_room", lambda self, size: True)


@of_full_disks("the reserve of the disk", "a broker that finds its disk full starts, and can delete")
def without_reserve(seam: Seam) -> None:
    seam.replace(SimDisk, "keep_reserve", lambda self, path, size: True)
