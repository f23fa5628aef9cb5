"""Damages files of a stopped broker that can be made again from its logs: indexes, snapshots, checkpoints.

Not the snapshots where segments begin, in a log whose first segments are deleted: its records do not tell of all
producers.
"""

from __future__ import annotations

from random import Random

from semel_storage import checkpoints
from semel_storage.log.snapshot import SNAPSHOT
from semel_storage.segments.segment import LOG, offset_of

from sim.disk import SimDisk

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")
AT_ROOT = (checkpoints.RECOVERY_POINT, checkpoints.LOG_START_OFFSET)
HOWS = ("delete", "empty", "cut", "append", "flip")
FILES_MOST = 6
BYTES_MOST = 600


def damage(disk: SimDisk, rng: Random) -> dict[str, bytes]:
    """Damage some derived files at random. Returns their previous contents by path, for `undo`."""
    before: dict[str, bytes] = {}
    for _ in range(rng.randint(1, FILES_MOST)):
        wanted = rng.choice((*DERIVED, checkpoints.LEADER_EPOCH, *AT_ROOT))
        found = [path for path in disk.paths() if path.endswith(wanted) and not _is_only_source(disk, path)]
        how = rng.choice(HOWS)
        if found:
            path = rng.choice(found)
            before.setdefault(path, disk.read_bytes(path))
            _change(disk, path, how, rng)
            disk.world.count(f"came/damage: {how} {wanted.removeprefix('.')}")
            disk.world.note(disk.name, f"damage: {how} {path}")
    return before


def _is_only_source(disk: SimDisk, path: str) -> bool:
    if not path.endswith(SNAPSHOT):
        return False
    directory, _, name = path.rpartition("/")
    bases = sorted(each for each in disk.listdir(directory) if each.endswith(LOG))
    return bool(bases) and offset_of(bases[0]) > 0 and name.removesuffix(SNAPSHOT) + LOG in bases


def undo(disk: SimDisk, before: dict[str, bytes]) -> None:
    """Restore the files."""
    for path, data in before.items():
        disk.put(path, data)


def _change(disk: SimDisk, path: str, how: str, rng: Random) -> None:
    data = bytearray(disk.read_bytes(path))
    match how:
        case "delete":
            disk.take(path)
            return
        case "empty":
            data.clear()
        case "cut":
            del data[max(0, len(data) - rng.randint(1, BYTES_MOST)) :]
        case "append":
            data += rng.randbytes(rng.randint(1, BYTES_MOST))
        case _:
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    disk.put(path, data)
