"""Records a broker at work, then starts brokers from the states that a power loss can leave after any of its disk
calls.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from semel import Admin, Consumer, TopicPartition
from semel.errors import KafkaError
from support.processes import BrokerProcess

from faults.power.judge import FoundAfterLoss, FoundPartition, problems
from faults.power.lost_power import FileSystem, Survives
from faults.power.recorded_disk import DiskCall, DiskCallKind, RecordedDisk
from faults.power.work import GROUP, ROUNDS, SETTINGS, AcknowledgedWork, Place, PowerLossWorkload

AT_REST = {"log.retention.check.interval.ms": "3600000", "log.cleaner.enable": "false"}
"""Settings with which nothing is deleted while a broker is checked after a loss."""
READ_S = 60.0
LOOK_S = 0.1
INTERNAL = "__"


class Recording(msgspec.Struct):
    """`records`: the disk calls. `answers`: the answers that clients got meanwhile."""

    records: list[DiskCall]
    answers: AcknowledgedWork


class LossPoint(msgspec.Struct, frozen=True):
    """A power loss right after the disk call `at`, counted from 1. `what`: this call, for reports."""

    at: int
    what: str
    survives: Survives
    seed: int

    def __str__(self) -> str:
        return f"after call {self.at} ({self.what}), of names that are not durable survive: {self.survives}"


async def record(directory: Path) -> Recording:
    """Record the disk calls of a broker while clients work on it. The broker is killed and stopped in between."""
    data = directory / "data"
    data.mkdir(parents=True)
    disk = RecordedDisk(directory, data)
    broker = BrokerProcess(data, **SETTINGS)
    broker.prefix = disk.prefix
    answers = AcknowledgedWork()
    try:
        for number, name in enumerate(ROUNDS):
            await asyncio.to_thread(broker.start, 60)
            work = PowerLossWorkload(broker.address, lambda: disk.count, name, answers)
            if number == 0:
                await work.prepare()
            await work.do()
            if number == 0:
                broker.kill()
            else:
                await asyncio.to_thread(broker.stop)
        return Recording(list(disk.records()), answers)
    finally:
        broker.kill()
        disk.close()


def draw_points(records: Sequence[DiskCall], count: int, rng: Random) -> list[LossPoint]:
    """Draw `count` points, spread evenly over the kinds of calls, and over the files and directories that they
    concern.
    """
    by_what: dict[str, list[int]] = {}
    for at, what in enumerate(described(records), 1):
        by_what.setdefault(what, []).append(at)
    points: dict[tuple[int, Survives], LossPoint] = {}
    waiting = [list(ats) for _, ats in sorted(by_what.items())]
    names = {at: what for what, ats in by_what.items() for at in ats}
    while len(points) < count and any(waiting):
        for ats in waiting:
            if ats and len(points) < count:
                at = ats.pop(rng.randrange(len(ats)))
                survives = rng.choice(list(Survives))
                points[at, survives] = LossPoint(at, names[at], survives, rng.randrange(1 << 30))
    return sorted(points.values(), key=lambda point: point.at)


def described(records: Sequence[DiskCall]) -> Iterator[str]:
    """The text for each call: its operation and the kind of its file."""
    paths: dict[int, str] = {}
    begun: dict[int, str] = {}
    for at, record in enumerate(records, 1):
        if record.kind is DiskCallKind.CREATE:
            paths[record.inode] = record.path
        path = record.path or paths.get(record.inode, "")
        what = f"{record.kind.name.lower().replace('_', ' ')} {kind_of(path)}".strip()
        if record.kind is DiskCallKind.RENAME:
            what = f"rename {kind_of(record.path)} to {kind_of(record.other)}"
        elif record.kind in (DiskCallKind.SYNC, DiskCallKind.SYNC_ALL):
            begun[at] = f"end of {what}"
        elif record.kind is DiskCallKind.SYNCED:
            what = begun[record.inode]
        yield what


def kind_of(path: str) -> str:
    """The kind of a file or directory."""
    directory, _, name = path.rpartition("/")
    if not path:
        return "the data directory"
    if directory or "." in name or name.endswith("checkpoint"):
        suffix = "".join(f".{part}" for part in name.split(".")[1:] if not part.isdigit())
        is_numbered = name[:1].isdigit()
        return suffix if is_numbered or name.endswith(("-delete", "-stray")) else name
    return "a log directory" if name.rpartition("-")[2].isdigit() else name


async def try_point(recording: Recording, point: LossPoint, directory: Path) -> list[str]:
    """The problems after this loss; empty if there are none."""
    system = FileSystem()
    for each in recording.records[: point.at]:
        system.apply(each)
    data = directory / "data"
    write_out(system.after_loss(Random(point.seed), point.survives), data)
    broker = BrokerProcess(data, **{**SETTINGS, **AT_REST})
    try:
        await asyncio.to_thread(broker.start, 60)
        found = await read(broker.address)
        wrong = list(problems(recording.answers, point.at, found))
        if status := await asyncio.to_thread(broker.stop):
            wrong.append(f"the broker ended with status {status}")
        wrong += [line for line in broker.log if '"level":"error"' in line or "Traceback" in line]
    except (RuntimeError, TimeoutError, KafkaError) as error:
        wrong = [f"{type(error).__name__}: {error}", *broker.log[-3:]]
    finally:
        broker.kill()
    if not wrong:
        shutil.rmtree(directory)
    return wrong


def write_out(files: dict[str, bytes | None], root: Path) -> None:
    """Write these files and directories below `root`."""
    root.mkdir(parents=True)
    for path, data in sorted(files.items()):
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)


async def read(address: str) -> FoundAfterLoss:
    """All data that a read-committed consumer gets once no transaction is open."""
    logs: dict[Place, FoundPartition] = {}
    async with asyncio.timeout(READ_S), Admin(bootstrap_servers=address) as admin:
        topics = [each for each in await admin.describe_topics() if not each.name.startswith(INTERNAL)]
        places = [TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions]
        ends: dict[TopicPartition, Any] = {}
        while places:
            ends = await admin.list_offsets(dict.fromkeys(places, -1))
            stable = await admin.list_offsets(dict.fromkeys(places, -1), read_committed=True)
            if all(stable[place].offset == ends[place].offset for place in places):
                break
            await asyncio.sleep(LOOK_S)
        starts = await admin.list_offsets(dict.fromkeys(places, -2)) if places else {}
        for place in places:
            logs[place.topic, place.partition] = FoundPartition(starts[place].offset, ends[place].offset, [])
        await _read_records(address, places, logs)
        committed = await admin.list_consumer_group_offsets(GROUP)
    return FoundAfterLoss(logs, {(place.topic, place.partition): each.offset for place, each in committed.items()})


async def _read_records(address: str, places: Sequence[TopicPartition], logs: dict[Place, FoundPartition]) -> None:
    settings: Any = {"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with Consumer(bootstrap_servers=address, **settings) as consumer:
        consumer.assign(list(places))
        left = {
            place
            for place in places
            if logs[place.topic, place.partition].start < logs[place.topic, place.partition].end
        }
        while left:
            for place, records in (await consumer.getmany(timeout_ms=200)).items():
                log = logs[place.topic, place.partition]
                for each in records:
                    key = None if each.key is None else each.key.decode()
                    log.rows.append((each.offset, key, (each.value or b"").decode()))
            left = {place for place in left if await consumer.position(place) < logs[place.topic, place.partition].end}


async def try_points(
    recording: Recording, points: Sequence[LossPoint], directory: Path, say: Callable[[LossPoint, list[str]], None]
) -> int:
    """Try each point. Returns the number of points with problems, and keeps their directories."""
    wrong = 0
    for point in points:
        found = await try_point(recording, point, directory / f"after-{point.at}-{point.survives}")
        wrong += bool(found)
        say(point, found)
    return wrong
