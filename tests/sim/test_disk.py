"""The simulated disk: it never loses synced data, and it may lose any part of the rest."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from semel_protocol.batch import CorruptBatch, crc_ok, read_header
from semel_protocol.records import Record, build_batch
from semel_storage.disk.disk import File

from sim.host import Host
from sim.world import NS, SimWorld


class DurabilityModel:
    """Appends random data to a few files without end, and records which bytes a power loss must not take."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.written: dict[str, bytes] = {}
        self.promised: dict[str, int] = {}

    async def main(self, host: Host) -> None:
        disk = host.disk
        disk.mkdir("d")
        files: dict[str, File] = {}
        while True:
            path = f"d/{self.rng.randrange(3)}"
            if path not in files:
                files[path] = disk.open(path)
                self.written[path] = files[path].pread(1 << 20, 0)
                disk.sync_dir("d")
            file = files[path]
            data = self.rng.randbytes(self.rng.choice((1, 100, 511, 512, 2_000)))
            file.append(data)
            self.written[path] += data
            covered = len(self.written[path])
            if self.rng.random() < 0.3:
                await file.sync()
                self.promised[path] = max(self.promised.get(path, 0), covered)
            else:
                await asyncio.sleep(self.rng.random() / 100)

    def check(self, world: SimWorld) -> int:
        """The number of bytes that survived although they were not synced."""
        disk, more = world.hosts["a"].disk, 0
        for path, count in self.promised.items():
            found = disk.read_bytes(path)
            assert found[:count] == self.written[path][:count]
            more += len(found) - count
        return more


@pytest.mark.parametrize("stale", [False, True])
def test_synced_data_survives_every_power_loss(stale: bool) -> None:
    more = []
    for seed in range(60):
        world = SimWorld(seed)
        host = world.host("a")
        host.disk.weather.stale_tails = stale
        keeper = DurabilityModel(Random(seed))
        for _ in range(3):
            host.boot(keeper.main)
            world.run(world.now_ns + keeper.rng.randrange(NS // 2))
            host.power_loss()
            more.append(keeper.check(world))
        world.close()
        assert world.failures == []
    assert min(more) == 0
    assert max(more) > 1000


def test_a_killed_process_loses_nothing_that_it_wrote() -> None:
    for seed in range(10):
        world = SimWorld(seed)
        host = world.host("a")
        keeper = DurabilityModel(Random(seed))
        host.boot(keeper.main)
        world.run(NS)
        host.kill()
        for path, data in keeper.written.items():
            assert host.disk.read_bytes(path) == data
        world.close()


def _after_power_loss(seed: int, *, stale: bool = False) -> tuple[bytes, bytes]:
    """The bytes written after the last sync, and the bytes in their place after a power loss."""
    world = SimWorld(seed)
    host = world.host("a")
    host.disk.weather.stale_tails = stale
    host.disk.mkdir("d")
    file = host.disk.open("d/f")
    host.disk.sync_dir("d")
    file.append(b"a" * 700)
    file.sync_now()
    tail = bytes(range(1, 256)) * 20
    file.append(tail)
    host.power_loss()
    found = host.disk.read_bytes("d/f")
    assert found[:700] == b"a" * 700
    world.close()
    return tail, found[700:]


def test_unsynced_sectors_are_lost_in_any_subset_and_read_as_zeros() -> None:
    kinds: set[object] = set()
    for seed in range(50):
        tail, found = _after_power_loss(seed)
        kinds.add(len(found) == 0)
        holes = [at for at, byte in enumerate(found) if not byte]
        assert all(found[at] in (0, tail[at]) for at in range(len(found)))
        kinds.add("torn" if len(found) % 512 else "whole")
        if holes and found[max(holes) + 1 :]:
            kinds.add("something stands behind a hole")
    assert kinds >= {False, "torn", "something stands behind a hole"}


def test_a_lost_sector_may_show_old_data_of_the_disk() -> None:
    for seed in range(20):
        tail, found = _after_power_loss(seed, stale=True)
        if any(found[at] not in (0, tail[at]) for at in range(len(found))):
            return
    pytest.fail("no stale sector in twenty losses of power")


def test_no_lost_batch_turns_into_one_of_another_log() -> None:
    """No reader of the file could tell, since a batch does not name its partition."""
    mine, other = (build_batch([Record(0, 1, b"k", value * 300)], codec=0) for value in (b"m", b"o"))
    has_stale = False
    for seed in range(200):
        world = SimWorld(seed)
        host = world.host("a")
        host.disk.weather.stale_tails = True
        host.disk.mkdir("d")
        removed = host.disk.open("d/removed.log")
        removed.append(other)
        host.disk.remove("d/removed.log")
        file = host.disk.open("d/00000000000000000000.log")
        host.disk.sync_dir("d")
        file.append(mine)
        host.power_loss()
        found = host.disk.read_bytes("d/00000000000000000000.log")
        has_stale |= bool(found) and found not in (mine, bytes(len(found)))
        assert found == mine or len(found) < len(mine) or not _is_batch(found)
        world.close()
    assert has_stale


def _is_batch(data: bytes) -> bool:
    try:
        return crc_ok(data, read_header(data))
    except CorruptBatch:
        return False


def test_names_that_were_not_synced_may_survive_or_not() -> None:
    seen = set()
    for seed in range(40):
        world = SimWorld(seed)
        disk = world.host("a").disk
        disk.mkdir("d")
        for name in "abcd":
            disk.write_atomically(f"d/{name}", b"old")
        disk.open("d/new")
        disk.rename("d/a", "d/moved")
        disk.remove("d/b")
        world.hosts["a"].power_loss()
        names = disk.listdir("d")
        assert {"c", "d"} <= set(names)
        seen.add(tuple(names))
        world.close()
    assert ("a", "b", "c", "d") in seen
    assert ("c", "d", "moved", "new") in seen
    assert len(seen) > 3


def _names_after_a_power_loss_amid_a_rename(seed: int, *, is_removed: bool) -> list[tuple[str, int]]:
    """A directory with three durable files is renamed, and perhaps removed; its parent is not synced. The directories
    after the power loss, each with its number of files."""
    world = SimWorld(seed)
    disk = world.host("a").disk
    disk.mkdir("d/old")
    for name in ("log", "index", "metadata"):
        disk.write_atomically(f"d/old/{name}", b"durable")
    disk.rename("d/old", "d/new")
    if is_removed:
        disk.rmtree("d/new")
    world.hosts["a"].power_loss()
    found = [(name, len(disk.listdir(f"d/{name}"))) for name in disk.listdir("d")]
    world.close()
    return found


def test_a_renamed_directory_has_one_name_and_all_its_files() -> None:
    """A rename is one change of a name: it takes all files along, and leaves no directory behind."""
    seen = {tuple(_names_after_a_power_loss_amid_a_rename(seed, is_removed=False)) for seed in range(40)}
    assert seen == {(("old", 3),), (("new", 3),)}


def test_the_removal_of_a_renamed_directory_may_survive_in_part_but_not_without_the_rename() -> None:
    seen = {tuple(_names_after_a_power_loss_amid_a_rename(seed, is_removed=True)) for seed in range(200)}
    assert seen == {(("old", 3),), *((("new", files),) for files in range(4))}


def _died(world: SimWorld, host: Host) -> list[str]:
    reasons: list[str] = []
    host.ended = reasons.append
    world.run(world.now_ns + 5 * NS)
    return reasons


@pytest.mark.parametrize("fault", ["eio", "full", "full amid an atomic write", "eio on a directory"])
def test_a_failed_write_or_sync_ends_the_process_at_once(fault: str) -> None:
    world = SimWorld(1)
    host = world.host("a")
    seen: list[str] = []

    async def main(host: Host) -> None:
        disk = host.disk
        disk.mkdir("d")
        file = disk.open("d/f")
        disk.sync_dir("d")
        try:
            match fault:
                case "eio":
                    disk.weather.failing_syncs = True
                    file.append(b"x" * 5_000)
                    await file.sync()
                case "full":
                    disk.weather.full_bytes = 1_000
                    file.append(b"x" * 600)
                    file.append(b"y" * 600)
                case "full amid an atomic write":
                    disk.weather.full_bytes = 1_000
                    disk.write_atomically("d/g", b"x" * 1_001)
                case "eio on a directory":
                    disk.weather.failing_syncs = True
                    disk.sync_dir("d")
            seen.append("went on")
        finally:
            disk.write_atomically("d/clean", b"")  # the process is dead before this line

    host.boot(main)
    (reason,) = _died(world, host)
    assert "failed" in reason
    assert seen == []
    assert not host.is_running
    assert not host.disk.exists("d/clean")
    if fault == "full":
        found = host.disk.read_bytes("d/f")
        assert found.startswith(b"x" * 600)
        assert set(found[600:]) <= {ord("y")}
        assert len(found) < 1_200
    world.close()
    assert world.failures == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_process_can_be_ended_before_each_change_that_it_makes(dark: bool) -> None:
    for changes in range(8):
        world = SimWorld(1)
        host = world.host("a")

        async def main(host: Host, changes: int = changes) -> None:
            host.disk.mkdir("d")
            host.end_before_change(changes, dark=dark)
            for number in range(10):
                host.disk.write_atomically("d/f", str(number).encode())

        host.boot(main)
        assert len(_died(world, host)) == 1
        assert host.machine_up is not dark
        assert host.disk.exists("d/f") == (changes > 0)
        if changes:
            assert host.disk.read_bytes("d/f") == str(changes - 1).encode()
        world.close()
        assert world.failures == []


def test_after_a_failed_sync_unwritten_pages_may_be_dropped() -> None:
    lost = 0
    for seed in range(20):
        world = SimWorld(seed)
        host = world.host("a")

        async def main(host: Host) -> None:
            host.disk.mkdir("d")
            file = host.disk.open("d/f")
            host.disk.sync_dir("d")
            file.append(b"a" * 1_000)
            await file.sync()
            file.append(b"b" * 3_000)
            host.disk.weather.failing_syncs = True
            await file.sync()

        host.boot(main)
        assert _died(world, host)
        found = host.disk.read_bytes("d/f")
        assert found[:1_000] == b"a" * 1_000
        lost += found != b"a" * 1_000 + b"b" * 3_000
        world.close()
    assert lost > 10


def test_a_slow_disk_delays_syncs() -> None:
    world = SimWorld(1)
    took: list[float] = []

    async def main(host: Host) -> None:
        host.disk.mkdir("d")
        file = host.disk.open("d/f")
        host.disk.weather.sync_ms = (1.0, 2.0)
        for slowdown in (1.0, 1_000.0):
            host.disk.weather.slowdown = slowdown
            file.append(b"x")
            began = host.monotonic()
            await file.sync()
            took.append(host.monotonic() - began)

    world.host("a").boot(main)
    world.run(10 * NS)
    assert 0.001 <= took[0] <= 0.0021
    assert 1 <= took[1] <= 2.1
    world.close()


def test_a_rotten_bit_stays() -> None:
    world = SimWorld(1)
    disk = world.host("a").disk
    disk.mkdir("d")
    disk.write_atomically("d/f", bytes(100))
    disk.rot("d/f", 50)
    found = disk.read_bytes("d/f")
    assert found[:50] + found[51:] == bytes(99)
    assert found[50].bit_count() == 1
    world.close()


def test_contents_without_stale_sectors_are_kept_over_another_power_loss() -> None:
    left = []
    for seed in range(30):
        world = SimWorld(seed)
        host = world.host("a")
        host.disk.weather.stale_tails = True
        host.disk.mkdir("d")
        file = host.disk.open("d/f")
        host.disk.sync_dir("d")
        file.append(b"a" * 3_000)
        host.power_loss()
        for path, with_zeros in host.disk.stale.items():
            found = host.disk.read_bytes(path)
            assert found != with_zeros
            assert all(there == zero or not zero for there, zero in zip(found, with_zeros, strict=True))
        left.append(len(host.disk.stale))
        known = dict(host.disk.stale)
        host.power_loss()  # before any start after the first one
        assert host.disk.stale == known
        world.close()
    assert {0, 1} == {*left}
