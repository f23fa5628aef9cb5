"""Safeguards of the loop against slow disks: no request of any client waits for the sync of another one."""

from __future__ import annotations

from functools import partial

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
