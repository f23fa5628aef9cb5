"""Damages files of a stopped broker that can be made again from its logs: indexes, snapshots, checkpoints."""

from __future__ import annotations

from random import Random

from semel_storage import checkpoints

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
        found = [path for path in disk.paths() if path.endswith(wanted)]
        how = rng.choice(HOWS)
        if found:
            path = rng.choice(found)
            before.setdefault(path, disk.read_bytes(path))
            _change(disk, path, how, rng)
            disk.world.count(f"came/damage: {how} {wanted.removeprefix('.')}")
            disk.world.note(disk.name, f"damage: {how} {path}")
    return before


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
