"""Safeguards of the loop against slow disks: no request of any client waits for the sync of another one."""

from __future__ import annotations

from functools import partial

from semel_broker.cluster.elections import BrokerStates
from semel_broker.partitions.disk_hangs import DiskHangs
from semel_storage.disk.sync_pace import SyncPace

from sim.ablations.ablation import Seam, safeguard
from sim.slow_disk import SlowDiskRun

of_disks = partial(safeguard, alone=SlowDiskRun)


@of_disks(
    "the first slow sync ends small syncs",
    "a disk that becomes slow holds the loop once, and threads sync from then on",
)
def small_syncs_on_a_slow_disk(seam: Seam) -> None:
    seam.replace(SyncPace, "is_quick", property(lambda self: True))
    seam.replace(SyncPace, "is_quick_together", property(lambda self: True))


@of_disks(
    "leadership leaves a disk that hangs",
    "while the disk of one broker hangs, brokers with other disks that are in sync lead in its place",
)
def leaders_on_disks_that_hang(seam: Seam) -> None:
    seam.replace(BrokerStates, "present", lambda self, isr, view: [each for each in isr if self.serves(each, view)])


@of_disks("the end of a hang is told", "a broker whose disk goes on stores writes again, and its replicas get in sync")
def a_hang_without_end(seam: Seam) -> None:
    look = DiskHangs.look
    seam.replace(DiskHangs, "look", lambda self: None if self.is_hanging else look(self))
