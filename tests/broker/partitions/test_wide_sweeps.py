"""Sweeps over very many logs, and removals of very many segments: no turn of the loop grows with their number.

The length of a turn is counted in function calls, as in `tests/broker/net/test_wide_requests.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence

import pytest
from broker.net.test_long_requests import with_broker
from broker.partitions.test_cleaner import DAY_MS, CleanerSetup, batch_of
from broker.partitions.test_partition import replicated
from semel_broker.node import Node
from semel_broker.partitions import cleaner
from semel_broker.partitions.partition import Partition
from semel_protocol.batch import read_header
from semel_storage import log_directory
from semel_storage.compaction import retention
from semel_storage.disk.debts import Debt
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log import log as log_module
from semel_storage.segments.log_config import LogConfig
from support.virtual_loop import VirtualLoop

NARROW, WIDE = 150, 400
AT_ONCE = 8
"""Logs and segments of one turn here, so that a few of them take several turns."""
CALLS_PER_LOG_MAX = 4.5
"""One turn may go over the keys of all logs, and no more."""
CALLS_PER_SEGMENT_MAX = 6.5
"""One turn may go over the offsets of all segments and snapshots."""
COMPACTED = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=DAY_MS)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (cleaner, "LOGS_PER_TURN"),
        (log_directory, "LOGS_PER_TURN"),
        (log_module, "SEGMENTS_PER_STEP"),
        (retention, "SEGMENTS_MAX"),
    ):
        monkeypatch.setattr(module, name, AT_ONCE)


class UncountedDisk(MemoryDisk):
    """Threads pay debts: this is not counted."""

    def pay(self, debts: Sequence[Debt]) -> None:
        count = sys.getprofile()
        sys.setprofile(None)
        try:
            super().pay(debts)
        finally:
            sys.setprofile(count)


def longest_turns(
    prepare: Callable[[CleanerSetup, int], dict[str, Callable[[], Awaitable[object]]]],
) -> list[dict[str, int]]:
    """The calls in the longest turn of each piece of work, for both sizes."""
    found: list[dict[str, int]] = []
    for size in (NARROW, WIDE):
        loop, most = VirtualLoop(), dict[str, int]()

        async def talk(_: Node, loop: VirtualLoop = loop, most: dict[str, int] = most, size: int = size) -> None:
            rig = CleanerSetup(UncountedDisk())
            for name, work in prepare(rig, size).items():
                with loop.counting_calls() as calls:
                    await work()
                most[name] = calls()

        with_broker(loop, talk)
        found.append(most)
    return found


def check(found: list[dict[str, int]], calls_max: float) -> None:
    narrow, wide = found
    each = {name: (wide[name] - narrow[name]) / (WIDE - NARROW) for name in narrow}
    grown = [
        f"{name}: {calls:.1f} calls for each one, in one turn" for name, calls in each.items() if calls > calls_max
    ]
    assert not grown, "\n".join(grown)


def put(partition: Partition) -> None:
    batch = batch_of([(b"k", b"v")])
    partition.append(batch, header=read_header(batch))


def test_no_turn_of_a_sweep_grows_with_the_number_of_logs() -> None:
    def prepare(rig: CleanerSetup, size: int) -> dict[str, Callable[[], Awaitable[object]]]:
        for number in range(size):
            partition = rig.partition(f"t{number}", COMPACTED)
            put(partition)
            put(partition)

        async def roll() -> None:
            rig.now_ms += 2 * DAY_MS
            await rig.cleaner.sweep_segments()

        return {
            "checkpoint": rig.logs.checkpoint,
            "segments": roll,
            "checkpoint of rolled logs": rig.logs.checkpoint,
            "checkpoint without changes": rig.logs.checkpoint,
            "producers": rig.cleaner.sweep_producers,
            "compaction": rig.cleaner.compact_dirtiest,
        }

    check(longest_turns(prepare), CALLS_PER_LOG_MAX)


def long_log(rig: CleanerSetup, size: int, name: str) -> Partition:
    """A log of this many segments."""
    partition = rig.partition(name, LogConfig(retention_ms=DAY_MS))
    for _ in range(size):
        put(partition)
        partition.log.disk.settle_now(partition.log.directory)
        partition.log.roll()
    put(partition)
    return partition


def test_no_turn_grows_with_the_number_of_segments_that_are_removed() -> None:
    def prepare(rig: CleanerSetup, size: int) -> dict[str, Callable[[], Awaitable[object]]]:
        expired, deleted, truncated, restarted = (long_log(rig, size, name) for name in ("a", "b", "c", "d"))
        rig.partitions[:] = [expired]
        for follower in (truncated, restarted):
            follower.become_follower(leader=2, epoch=1)

        async def expire() -> None:
            rig.now_ms += 2 * DAY_MS
            await rig.cleaner.sweep_segments()
            assert len(expired.log.segments) == 1

        async def delete_records() -> None:
            deleted.delete_records(size)
            assert deleted._deletion is not None
            await deleted._deletion
            assert len(deleted.log.segments) == 1

        async def truncate() -> None:
            truncated.truncate_to(1)
            await truncated.changed()
            assert len(truncated.log.segments) == 2

        async def restart() -> None:
            restarted.restart_at(2 * size, ())
            await restarted.changed()
            assert len(restarted.log.segments) == 1

        async def sync() -> None:
            await rig.logs.checkpoint()

        async def one_more() -> None:
            truncated.append_replicated(replicated(b"x", base_offset=1), leader_epoch=1, high_watermark=0)

        return {
            "checkpoint of long logs": sync,
            "retention": expire,
            "DeleteRecords": delete_records,
            "truncation": truncate,
            "restart": restart,
            "an append": one_more,
        }

    check(longest_turns(prepare), CALLS_PER_SEGMENT_MAX)
