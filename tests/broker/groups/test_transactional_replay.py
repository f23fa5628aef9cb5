"""Pending offsets are equal when they are applied live, replayed, or replayed after compaction."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from broker.groups.group_broker import GroupBroker, breathe
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.offsets.pending import PendingOffsets
from semel_broker.groups.offsets.records import offset_rows
from semel_broker.groups.replay import GroupReplay
from semel_broker.groups.requests import TimePoint
from semel_protocol.batch import read_header
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.records import Record, build_batch

NOW = TimePoint(0, 0)
PRODUCERS = (7, 8)
PARTITIONS = st.integers(0, 2)


class LogRecord(msgspec.Struct, frozen=True):
    """One record of the log. `producer` None: no transaction; `offset` None: a tombstone; `commit`: a marker."""

    producer: int | None = None
    partition: int = 0
    offset: int | None = None
    commit: bool | None = None


LINES = st.one_of(
    st.builds(LogRecord, st.none(), PARTITIONS, st.one_of(st.none(), st.integers(0, 99))),
    st.builds(LogRecord, st.sampled_from(PRODUCERS), PARTITIONS, st.integers(0, 99)),
    st.builds(LogRecord, producer=st.sampled_from(PRODUCERS), commit=st.booleans()),
)


def replay(log: list[tuple[int, LogRecord]]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The offset of each partition, and the pending offsets of transactions for it."""
    it = GroupReplay()
    for position, line in log:
        batch = batch_of(position, line)
        it.feed(3, read_header(batch), batch)
    group = it.groups(NOW).get("g")
    pending: dict[int, list[int]] = {}
    for (_, _, partition), _, _, committed in it.pending():
        pending.setdefault(partition, []).append(committed.offset)
    return {p: committed.offset for _, p, committed in group.offsets} if group else {}, pending


def batch_of(position: int, line: LogRecord) -> bytes:
    if line.commit is not None:
        assert line.producer is not None
        marker = EndTxnMarker(ControlType.COMMIT if line.commit else ControlType.ABORT, 0)
        return build_marker(marker, producer_id=line.producer, producer_epoch=0, timestamp_ms=0, base_offset=position)
    committed = None if line.offset is None else CommittedOffset(line.offset)
    ((key, value),) = offset_rows("g", [OffsetRecord("t", line.partition, committed)])
    records = [Record(0, 0, key, value)]
    if line.producer is None:
        return build_batch(records, base_offset=position)
    return build_batch(
        records,
        base_offset=position,
        producer_id=line.producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def outcomes(log: list[LogRecord]) -> list[bool | None]:
    """For each record: True (it counts), False (aborted), None (undecided)."""
    found: list[bool | None] = []
    for at, line in enumerate(log):
        if line.producer is None:
            found.append(True)
        else:
            ends = (after.commit for after in log[at:] if after.commit is not None and after.producer == line.producer)
            found.append(next(ends, None))
    return found


def model(log: list[LogRecord]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The rule itself: the last record of a key counts, without those of aborted transactions."""
    counts: dict[int, int] = {}
    pending: dict[int, dict[int, int]] = {}
    for line, outcome in zip(log, outcomes(log), strict=True):
        if line.commit is not None or outcome is False:
            continue
        if outcome is None:
            assert line.producer is not None
            assert line.offset is not None
            held = pending.setdefault(line.partition, {})
            held.pop(line.producer, None)
            held[line.producer] = line.offset
            continue
        pending.pop(line.partition, None)
        counts.pop(line.partition, None)
        if line.offset is not None:
            counts[line.partition] = line.offset
    return counts, {partition: list(held.values()) for partition, held in pending.items()}


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=15))
def test_a_replay_finds_the_last_record_that_counts(log: list[LogRecord]) -> None:
    assert replay(list(enumerate(log))) == model(log)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=15), st.data())
def test_compaction_changes_nothing(log: list[LogRecord], data: st.DataObject) -> None:
    """Compaction stops at the first undecided record.

    It drops aborted records and keeps the last record of each key.
    """
    counts = outcomes(log)
    stable = next((at for at, outcome in enumerate(counts) if outcome is None), len(log))
    end = data.draw(st.integers(0, stable))
    kept = []
    for at, line in enumerate(log):
        is_data = line.commit is None
        behind = log[at + 1 : end]
        superseded = any(
            after.commit is None and after.partition == line.partition and counts[at + 1 + i]
            for i, after in enumerate(behind)
        )
        if at < end and is_data and (superseded or not counts[at]):
            continue
        kept.append((at, line))
    assert replay(kept) == replay(list(enumerate(log)))


@given(st.lists(st.tuples(st.sampled_from("hse"), st.sampled_from(PRODUCERS), PARTITIONS, st.booleans()), max_size=20))
def test_pending_offsets_keep_nothing_of_ended_transactions(acts: list[tuple[str, int, int, bool]]) -> None:
    pending: PendingOffsets[int, int] = PendingOffsets()
    for position, (act, producer, key, commit) in enumerate(acts):
        if act == "h":
            pending.hold((0, producer), key, position, position)
        elif act == "s":
            pending.supersede(key, position)
            assert key not in pending
        else:
            pending.end((0, producer), commit)
            assert all(writer != (0, producer) for _, writer, _, _ in pending)
    for producer in PRODUCERS:
        pending.end((0, producer), commit=True)
    assert not pending
    assert list(pending) == list(pending.groups()) == list(pending.of_group("")) == []


ACTS = st.one_of(
    st.tuples(st.just("commit"), PARTITIONS, st.integers(0, 99)),
    st.tuples(st.just("hold"), PARTITIONS, st.integers(0, 99), st.sampled_from(PRODUCERS)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("delete offset"), PARTITIONS),
    st.tuples(st.just("delete group")),
    st.tuples(st.just("forget topic")),
    st.tuples(st.just("slow disk")),
    st.tuples(st.just("fast disk")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTS, max_size=25), st.sampled_from(["os", "fsync"]))
def test_a_restart_finds_the_offsets_that_were_in_effect(acts: list[tuple[Any, ...]], durability: str) -> None:
    asyncio.run(restart_finds_what_was_seen(acts, durability))


async def counted(group_broker: GroupBroker) -> int:
    """The offsets of all groups, each counted."""
    groups = await group_broker.groups.groups()
    pending = sum(len(group_broker.ask.unstable(group.group_id)) for group in groups)
    return pending + sum(len(list(group.offsets)) for group in groups)


async def restart_finds_what_was_seen(acts: list[tuple[Any, ...]], durability: str) -> None:
    group_broker = await GroupBroker(durability=durability).open()
    await group_broker.commit({9: 9}, group="first")
    tasks = []
    ends: dict[int, asyncio.Task[None]] = {}
    slow = False
    for act, *row in acts:
        if act == "slow disk" and not slow:
            group_broker.disk.hold_syncs()
        elif act == "fast disk" and slow:
            group_broker.disk.release_syncs()
        if act.endswith("disk"):
            slow = act == "slow disk"
            continue
        if act == "hold" and row[2] in ends and not ends[row[2]].done():
            continue  # its transaction is being ended: the coordinator lets nothing in
        tasks.append(asyncio.create_task(take(group_broker, act, row)))
        if act == "end":
            ends[row[0]] = tasks[-1]
        await breathe(3)
    if slow:
        group_broker.disk.release_syncs()
    for refused in await asyncio.gather(*tasks, return_exceptions=True):
        assert refused is None or getattr(refused, "code", None) is not None, refused
    seen, unstable = await group_broker.everything(), sorted(group_broker.ask.unstable("g"))
    offset_count = group_broker.groups.context.offset_count()
    assert offset_count == await counted(group_broker)
    await group_broker.restart()
    assert group_broker.groups.context.offset_count() == offset_count
    assert (await group_broker.everything(), sorted(group_broker.ask.unstable("g"))) == (seen, unstable)
    await group_broker.close()


async def take(group_broker: GroupBroker, act: str, row: list[Any]) -> None:
    if act == "commit":
        await group_broker.commit({row[0]: row[1]})
    elif act == "hold":
        await group_broker.hold({row[0]: row[1]}, row[2])
    elif act == "end":
        await group_broker.end(row[0], commit=row[1])
    elif act == "delete offset":
        await group_broker.ask.delete_offsets("g", [("t", row[0])])
    elif act == "delete group":
        await group_broker.ask.delete_group("g")
    else:
        await group_broker.delete_topic()
        await group_broker.topics.ensure("t")
