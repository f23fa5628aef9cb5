"""The swap of a compacted segment survives the end of the process, or a power loss, at any step."""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from semel_storage.compaction.compaction import Compacted, compact, dirtiness
from semel_storage.disk.memory_disk import MemoryDisk, MemoryFile
from semel_storage.segments.compaction_swap import recover_swaps
from semel_storage.segments.log_config import LogConfig
from support.logs import ROOT, TOPIC, DataDirectory, no_pause, pairs_of

CONFIG = LogConfig(cleanup_policy=("compact",), delete_retention_ms=1000, index_interval_bytes=0)
DIRECTORY = f"{ROOT}/{TOPIC}-0"


class EndedProcessError(BaseException):
    """The process has ended."""


class MortalDisk(MemoryDisk):
    """Raises `EndedProcessError` before the `steps_left`-th change from now.

    It does nothing more until it is `revived`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise EndedProcessError
            self.steps_left -= 1

    def open(self, path: str) -> MemoryFile:
        file = super().open(path)
        append = file.append

        def counted(*chunks: Any) -> int:
            self.step()
            return append(*chunks)

        file.append = counted  # type: ignore[method-assign]
        return file


def mortal(name: str) -> Callable[..., None]:
    def change(self: MortalDisk, *arguments: Any, **options: Any) -> None:
        self.step()
        getattr(MemoryDisk, name)(self, *arguments, **options)

    return change


for changing in ("rename", "remove", "sync_dir", "pay", "write_atomically"):
    setattr(MortalDisk, changing, mortal(changing))


async def prepared(disk: MortalDisk, config: LogConfig = CONFIG) -> DataDirectory:
    """Four sealed segments; the tombstone of `gone` is past its horizon, its value still stands in an older segment."""
    data = DataDirectory(config, disk)
    data.append([(b"gone", None), (b"a", b"0")])
    data.log.roll()
    await round_of(data, 0)
    for n in range(1, 4):
        data.append([(b"a", b"%d" % n), (b"k%d" % n, b"x" * 50)], producer=(4, 0, 2 * (n - 1)))
        data.log.roll()
    data.now_ms += 5000
    return data


async def round_of(data: DataDirectory, first_dirty_offset: int) -> Compacted:
    await data.log.durability.checkpoint()
    dirty = dirtiness(data.log, first_dirty_offset, last_stable_offset=data.log.end_offset, now_ms=data.now_ms)
    return await compact(
        data.log, dirty, now_ms=data.now_ms, keys_max=100, held_by_all=data.log.end_offset, pause=no_pause
    )


FINAL = [(3, b"k1", b"x" * 50), (5, b"k2", b"x" * 50), (6, b"a", b"3"), (7, b"k3", b"x" * 50)]


async def steps_of_a_round(config: LogConfig) -> int:
    disk = MortalDisk()
    data = await prepared(disk, config)
    await data.log.durability.checkpoint()
    disk.steps = 0
    await round_of(data, 2)
    assert pairs_of(data.log) == FINAL
    return disk.steps


@pytest.mark.proves("rename-without-sync")
@pytest.mark.parametrize("ending", ["killed", "power lost"])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 330], ids=["one group", "two groups"])
async def test_recovery_finds_a_complete_log_after_a_stop_at_any_step(segment_bytes: int, ending: str) -> None:
    config = msgspec.structs.replace(CONFIG, segment_bytes=segment_bytes)
    steps = await steps_of_a_round(config)
    assert steps > 15
    outcomes = []
    for step in range(steps):
        disk = MortalDisk()
        data = await prepared(disk, config)
        await data.log.durability.checkpoint()
        before = pairs_of(data.log)
        disk.steps_left = step
        with pytest.raises(EndedProcessError):
            await round_of(data, 2)
        disk.steps_left = None
        data.kill_and_open() if ending == "killed" else data.crash_and_open()
        found = pairs_of(data.log)
        assert [row for row in before if row in found] == found, f"step {step}: nothing new, nothing moved"
        assert [row for row in FINAL if row in found] == FINAL, f"step {step}: nothing lost"
        assert data.log.end_offset == 8
        assert data.append([(b"a", b"3"), (b"k3", b"x" * 50)], producer=(4, 0, 4)).duplicate
        assert not [name for name in disk.listdir(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
        outcomes.append(found == FINAL)
        await round_of(data, 2)
        assert pairs_of(data.log) == FINAL, f"step {step}: the next round finishes the work"
    assert {True, False} == set(outcomes), "some ends come before the point of no return, some after it"


async def test_a_power_loss_during_recovery_is_recovered() -> None:
    for step in range(12):
        disk = MortalDisk()
        data = await prepared(disk)
        await data.log.durability.checkpoint()
        disk.steps_left = await steps_of_a_round(CONFIG) - 8
        with pytest.raises(EndedProcessError):
            await round_of(data, 2)
        disk.steps_left = None
        disk.crash()
        assert any(name.endswith(".log.swap") for name in disk.listdir(DIRECTORY)), "past the point of no return"
        disk.steps_left = step
        with contextlib.suppress(EndedProcessError):
            recover_swaps(disk, DIRECTORY)
        disk.steps_left = None
        data.crash_and_open()
        assert pairs_of(data.log) == FINAL, f"died at step {step} of recovery"


async def test_unused_files_of_a_swap_are_removed() -> None:
    data = await prepared(MortalDisk())
    expected = pairs_of(data.log)
    data.logs.close()
    for name in (
        "0.log.cleaned",
        "0.index.cleaned",
        f"{2:020d}.index.swap",
        f"{2:020d}.timeindex.swap",
        "0.log.deleted",
    ):
        data.disk.open(f"{DIRECTORY}/{name}").append(b"rubbish")
    data.open()
    assert pairs_of(data.log) == expected
    assert not [name for name in data.disk.listdir(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
