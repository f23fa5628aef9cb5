"""Compaction of one log: remaining records, their offsets, and the lifetime of tombstones."""

import msgspec
import pytest
from semel_protocol.batch import CorruptBatch, iterate, read_header
from semel_protocol.compression import CODECS
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, decode_batch, rebuild_batch
from semel_storage.compaction.compaction import Compacted, CompactionAborted, Dirtiness, compact, dirtiness
from semel_storage.log.log import AppendResult, Log
from semel_storage.segments.log_config import LogConfig
from support.logs import NOW_MS, DataDirectory, Pair, batch_of, no_pause, pairs_of, records_of

COMPACTED = LogConfig(cleanup_policy=("compact",), delete_retention_ms=1000)
HOUR_MS = 3_600_000


def dirty_part(
    log: Log, first_dirty_offset: int = 0, last_stable_offset: int | None = None, *, now_ms: int = NOW_MS
) -> Dirtiness:
    stable = log.end_offset if last_stable_offset is None else last_stable_offset
    return dirtiness(log, first_dirty_offset, last_stable_offset=stable, now_ms=now_ms)


async def clean(
    data: DataDirectory,
    first_dirty_offset: int = 0,
    *,
    keys_max: int = 1000,
    last_stable_offset: int | None = None,
    held_by_all: int | None = None,
) -> Compacted:
    """Make all data durable, then run one round. Without `held_by_all` there is no other replica."""
    await data.log.durability.checkpoint()
    dirty = dirty_part(data.log, first_dirty_offset, last_stable_offset)
    held_by_all = data.log.end_offset if held_by_all is None else held_by_all
    return await compact(
        data.log, dirty, now_ms=data.now_ms, keys_max=keys_max, held_by_all=held_by_all, pause=no_pause
    )


def fill(data: DataDirectory, *segments: list[Pair], codec: int = 0) -> None:
    """Each list of pairs as one batch in a segment of its own; an empty active segment follows."""
    for pairs in segments:
        data.append(pairs, codec=codec)
        data.log.roll()


def batches_of(log: Log) -> list[tuple[int, int, int]]:
    """(base offset, last offset, records) of every batch."""
    return [
        (header.base_offset, header.last_offset, header.record_count)
        for segment in log.segments
        for _, header, _ in segment.scan()
    ]


# Remaining records


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
async def test_last_value_of_each_key_stays_at_its_offset(codec: int) -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], [(b"b", b"2"), (b"c", b"1")], codec=codec)
    before = {record.offset: record for record in records_of(data.log)}
    done = await clean(data)
    assert done == Compacted(5, done.bytes_before, done.bytes_after, True)
    assert done.bytes_after == data.log.size < done.bytes_before
    assert pairs_of(data.log) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert all(record == before[record.offset] for record in records_of(data.log))
    assert {header.codec for segment in data.log.segments for _, header, _ in segment.scan()} == {codec}
    data.restart()
    assert pairs_of(data.log) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]


async def test_every_offset_can_still_be_read() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, *[[(b"a", b"%d" % n), (b"b%d" % n, b"x")] for n in range(6)])
    await clean(data)
    expected = pairs_of(data.log)
    assert [offset for offset, _, _ in expected] == [1, 3, 5, 7, 9, 10, 11]
    for offset in range(data.log.start_offset, data.log.end_offset):
        assert [r.offset for r in records_of(data.log, offset)] == [o for o, _, _ in expected if o >= offset]


async def test_records_without_a_key_are_removed() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(None, b"1"), (b"a", b"1")], [(b"b", b"1")])
    await clean(data)
    assert pairs_of(data.log) == [(1, b"a", b"1"), (2, b"b", b"1")]


async def test_small_segments_are_merged_without_the_active_one() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, *[[(b"k%d" % n, b"x" * 40)] for n in range(8)])
    data.append([(b"k0", b"later")])
    assert len(data.log.segments) == 9
    await clean(data)
    assert [s.base_offset for s in data.log.segments] == [0, 8]
    assert len(pairs_of(data.log)) == 9


async def test_grouped_segments_never_exceed_segment_bytes() -> None:
    data = DataDirectory(msgspec.structs.replace(COMPACTED, segment_bytes=300))
    fill(data, *[[(b"k%d" % n, b"x" * 40)] for n in range(8)])
    await clean(data)
    assert len(pairs_of(data.log)) == 8
    assert [s.base_offset for s in data.log.segments] == [0, 2, 4, 6, 8]
    assert all(segment.size <= 300 for segment in data.log.segments)


async def test_a_segment_without_remaining_records_leaves_a_readable_log() -> None:
    data = DataDirectory(msgspec.structs.replace(COMPACTED, segment_bytes=100))
    fill(data, [(b"a", b"x" * 20)], [(b"a", b"y" * 20)], [(b"a", b"z" * 20)])
    await clean(data)
    for _ in range(2):
        assert pairs_of(data.log) == [(2, b"a", b"z" * 20)]
        assert data.log.offset_for_timestamp(0, up_to=3) == (2, NOW_MS)
        data.restart()


async def test_a_second_round_over_a_clean_log_rewrites_nothing() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1"), (b"a", b"2")], [(b"b", b"1")])
    first = await clean(data)
    names, standing = data.disk.listdir(data.directory), data.log.segments[0]
    assert dirty_part(data.log, first.end_offset).dirty_bytes == 0
    again = await clean(data, first.end_offset)
    assert again == Compacted(3, first.bytes_after, first.bytes_after, True)
    assert data.log.segments[0] is standing
    assert data.disk.listdir(data.directory) == names


async def test_the_last_batch_of_a_round_stays() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1")], [(None, b"no key, so it goes")])
    await clean(data)
    assert batches_of(data.log) == [(0, 0, 1), (1, 1, 0)]


# Where compaction ends


async def test_compaction_stops_at_the_last_stable_offset() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1")], [(b"a", b"2")], [(b"a", b"3")])
    done = await clean(data, last_stable_offset=2)
    assert done.end_offset == 2
    assert pairs_of(data.log) == [(1, b"a", b"2"), (2, b"a", b"3")]


async def test_compaction_stops_at_the_recovery_point() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1")], [(b"a", b"2")])
    assert dirty_part(data.log).first_uncleanable_offset == 0
    await data.log.durability.checkpoint()
    assert dirty_part(data.log).first_uncleanable_offset == 2


async def test_only_whole_segments_below_the_stable_offset_are_compacted() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1")])
    data.append([(b"a", b"2")])
    data.append([(b"a", b"3")])
    data.log.roll()
    await data.log.durability.checkpoint()
    assert dirty_part(data.log, 0, last_stable_offset=2).first_uncleanable_offset == 1
    assert dirty_part(data.log, 1, last_stable_offset=2).dirty_bytes == 0, "nothing to do, so nothing is due"
    assert dirty_part(data.log, 2, last_stable_offset=2).dirty_bytes == 0
    done = await clean(data, 1)
    assert (done.end_offset, done.is_complete) == (3, True)
    assert pairs_of(data.log) == [(2, b"a", b"3")]


async def test_a_full_map_ends_the_round_and_the_next_round_continues() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, *[[(b"k%d" % (n % 4), b"%d" % n), (b"j%d" % (n % 4), b"%d" % n)] for n in range(12)])
    end_offset, rounds = 0, 0
    while end_offset < 24:
        done = await clean(data, end_offset, keys_max=4)
        assert done.end_offset > end_offset, "a round must make progress"
        assert done.is_complete == (done.end_offset == 24)
        end_offset, rounds = done.end_offset, rounds + 1
    assert rounds > 2
    assert [offset for offset, _, _ in pairs_of(data.log)] == list(range(16, 24))


async def test_a_batch_with_more_keys_than_the_map_is_mapped_alone() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"%d" % n, b"x") for n in range(10)], [(b"3", b"y")])
    done = await clean(data, keys_max=3)
    assert (done.end_offset, done.is_complete) == (10, False)
    assert (await clean(data, 10, keys_max=3)).is_complete


async def test_lags_of_undated_records_are_measured_from_the_last_change_of_the_file() -> None:
    """As in Kafka for min.compaction.lag.ms. Kafka never counts them as overdue; here max.compaction.lag.ms holds."""
    data = DataDirectory(msgspec.structs.replace(COMPACTED, min_compaction_lag_ms=HOUR_MS))
    data.append([(b"a", b"1")], timestamp_ms=-1)
    data.log.roll()
    data.append([(b"a", b"2")], timestamp_ms=-1)
    await data.log.durability.checkpoint()
    changed_ms, data.now_ms = data.now_ms, data.now_ms + HOUR_MS - 1
    assert dirty_part(data.log, now_ms=changed_ms + HOUR_MS - 1).dirty_bytes == 0
    assert dirty_part(data.log, now_ms=changed_ms + HOUR_MS).dirty_bytes > 0
    data.log.config = msgspec.structs.replace(COMPACTED, max_compaction_lag_ms=HOUR_MS)
    assert not dirty_part(data.log, now_ms=changed_ms + HOUR_MS).overdue
    assert dirty_part(data.log, now_ms=changed_ms + HOUR_MS + 1).overdue


async def test_compaction_keeps_the_time_of_the_last_change() -> None:
    """Retention of undated records is measured from it; Kafka's cleaner keeps it, too."""
    data = DataDirectory(COMPACTED)
    data.append([(b"a", b"1"), (b"b", b"1")], timestamp_ms=-1)
    data.log.roll()
    data.append([(b"a", b"2")], timestamp_ms=-1)
    changed_ms, data.now_ms = data.now_ms, data.now_ms + HOUR_MS
    data.log.roll()
    await clean(data)
    assert data.log.segments[0].modified_ms == changed_ms
    data.restart()
    assert data.log.segments[0].modified_ms == changed_ms


async def test_min_compaction_lag_keeps_young_segments() -> None:
    data = DataDirectory(msgspec.structs.replace(COMPACTED, min_compaction_lag_ms=HOUR_MS))
    data.append([(b"a", b"1")], timestamp_ms=NOW_MS - 2 * HOUR_MS)
    data.log.roll()
    fill(data, [(b"a", b"2")])
    await data.log.durability.checkpoint()
    assert dirty_part(data.log).first_uncleanable_offset == 1


async def test_dirtiness_counts_bytes_and_overrides_the_ratio_when_overdue() -> None:
    config = msgspec.structs.replace(COMPACTED, min_cleanable_dirty_ratio=0.5, segment_bytes=100)
    data = DataDirectory(config)
    fill(data, [(b"a", b"1")], [(b"b", b"1")], [(b"c", b"1")])
    await data.log.durability.checkpoint()
    size = data.log.segments[0].size
    dirty = dirty_part(data.log, 2)
    assert (dirty.clean_bytes, dirty.dirty_bytes, dirty.overdue) == (2 * size, size, False)
    assert not dirty.is_due(config)
    assert dirty_part(data.log, 1).is_due(config)
    data.log.config = msgspec.structs.replace(config, max_compaction_lag_ms=HOUR_MS)
    overdue = dirtiness(data.log, 2, last_stable_offset=3, now_ms=NOW_MS + HOUR_MS + 1)
    assert overdue.overdue
    assert overdue.is_due(data.log.config)
    assert not dirty_part(data.log, 3).is_due(data.log.config), "nothing dirty, nothing due"


@pytest.mark.parametrize("offset", [-1, 99])
async def test_a_first_dirty_offset_outside_the_log_counts_from_its_start(offset: int) -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1")])
    assert dirty_part(data.log, offset).first_dirty_offset == 0


# Tombstones


async def test_a_tombstone_stays_until_its_delete_horizon() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1"), (b"b", b"1")], [(b"a", None)])
    timestamps = {record.offset: record.timestamp for record in records_of(data.log)}
    done = await clean(data)
    assert pairs_of(data.log) == [(1, b"b", b"1"), (2, b"a", None)]
    assert {record.offset: record.timestamp for record in records_of(data.log)} == {1: timestamps[1], 2: timestamps[2]}
    (horizon_ms,) = [h.delete_horizon_ms for _, h, _ in data.log.segments[0].scan() if h.base_offset == 2]
    assert horizon_ms == data.now_ms + 1000

    data.now_ms += 999
    fill(data, [(b"c", b"1")])
    done = await clean(data, done.end_offset)
    assert (2, b"a", None) in pairs_of(data.log)

    data.now_ms += 1
    fill(data, [(b"d", b"1")])
    await clean(data, done.end_offset)
    assert pairs_of(data.log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


async def test_a_tombstone_that_a_replica_may_lack_stays_at_any_age() -> None:
    """That replica would keep the value, and readers would see it if the replica became leader."""
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1"), (b"b", b"1")], [(b"a", None)], [(b"c", b"1")])
    await clean(data)
    data.now_ms += HOUR_MS
    for held_by_all in (-1, 0, 2):
        await clean(data, held_by_all=held_by_all)
        assert pairs_of(data.log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    await clean(data, held_by_all=3)
    assert pairs_of(data.log) == [(1, b"b", b"1"), (3, b"c", b"1")]


async def test_a_horizon_is_set_once_and_kept_when_the_batch_is_rewritten() -> None:
    data = DataDirectory(msgspec.structs.replace(COMPACTED, delete_retention_ms=HOUR_MS))
    fill(data, [(b"a", None), (b"b", b"1")])
    done = await clean(data)
    data.now_ms += 1000
    fill(data, [(b"b", b"2")])
    await clean(data, done.end_offset)
    assert pairs_of(data.log) == [(0, b"a", None), (2, b"b", b"2")]
    (header,) = [h for _, h, _ in data.log.segments[0].scan() if h.base_offset == 0]
    assert header.delete_horizon_ms == NOW_MS + HOUR_MS
    assert (header.record_count, header.last_offset_delta) == (1, 1)


async def test_a_tombstone_above_the_map_stays_after_its_horizon() -> None:
    """Without it, `b` would reappear, which only the round after the next one outdates."""
    data = DataDirectory(COMPACTED)
    data.append([(b"a", b"1"), (b"x", b"1")])
    data.append([(b"b", b"1"), (b"y", b"1")])
    data.append([(b"b", None), (b"z", b"1")])
    data.log.roll()
    assert (await clean(data, 0, keys_max=2)).end_offset == 2
    data.now_ms += HOUR_MS
    assert (await clean(data, 2, keys_max=2)).end_offset == 4
    assert {(2, b"b", b"1"), (4, b"b", None)} <= set(pairs_of(data.log))
    assert (await clean(data, 4, keys_max=2)).end_offset == 6
    assert [key for _, key, _ in pairs_of(data.log)] == [b"a", b"x", b"y", b"z"]


# Producers


async def test_a_producers_last_batches_stay_empty_so_that_their_sequences_survive() -> None:
    data = DataDirectory(COMPACTED)
    data.append([(b"a", b"1"), (b"a", b"2"), (b"a", b"3")], producer=(5, 2, 0))
    data.append([(b"a", b"4"), (b"a", b"5")], producer=(5, 2, 3))
    data.append([(b"a", b"6")])
    data.log.roll()
    await clean(data)
    assert pairs_of(data.log) == [(5, b"a", b"6")]
    assert batches_of(data.log) == [(0, 2, 0), (3, 4, 0), (5, 5, 1)]
    await data.log.durability.checkpoint()
    for name in data.disk.listdir(data.directory):
        if name.endswith(".snapshot"):
            data.disk.remove(f"{data.directory}/{name}")
    data.kill_and_open()
    assert data.append([(b"a", b"4"), (b"a", b"5")], producer=(5, 2, 3)) == AppendResult(3, 4, duplicate=True)
    assert data.append([(b"b", b"1")], producer=(5, 2, 5)).base_offset == 6
    with pytest.raises(KafkaError) as raised:
        data.append([(b"b", b"1")], producer=(5, 2, 9))
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.proves("window-after-compaction")
async def test_retries_are_recognised_after_compaction_and_a_power_loss() -> None:
    """Snapshots are not synced: after a power loss the log may be the only source of producer state."""
    data = DataDirectory(COMPACTED)
    for sequence in range(7):
        data.append([(b"a", b"%d" % sequence)], producer=(5, 0, sequence))
    data.log.roll()
    await clean(data)
    assert [record.offset for record in records_of(data.log)] == [6]
    for path in [path for path in data.disk.listdir(data.directory) if path.endswith(".snapshot")]:
        data.disk.overwrite(f"{data.directory}/{path}", bytes(100))
    data.crash_and_open()
    for sequence in range(2, 7):
        retried = data.append([(b"a", b"%d" % sequence)], producer=(5, 0, sequence))
        assert retried == AppendResult(sequence, sequence, duplicate=True)
    assert data.append([(b"a", b"7")], producer=(5, 0, 7)).base_offset == 7


@pytest.mark.proves("window-of-a-truncated-batch")
@pytest.mark.parametrize(
    "later",
    [[(5, 1, 0)], [(5, 0, sequence) for sequence in range(1, 7)]],
    ids=["a newer epoch", "a full window"],
)
async def test_batches_that_may_be_truncated_do_not_replace_the_last_ones(later: list[tuple[int, int, int]]) -> None:
    """Another leader may lack the batches above the high watermark.

    Then the batches before them are the last ones again.
    """
    data = DataDirectory(COMPACTED)
    data.append([(b"a", b"1")], producer=(5, 0, 0))
    data.append([(b"a", b"2")])
    data.log.roll()
    high_watermark = data.log.end_offset
    for producer in later:
        data.append([(b"b", b"1")], producer=producer)
    await clean(data, last_stable_offset=high_watermark)
    for name in data.disk.listdir(data.directory):
        if name.endswith(".snapshot"):
            data.disk.overwrite(f"{data.directory}/{name}", bytes(100))
    data.crash_and_open()
    data.log.truncate_to(high_watermark)
    assert data.append([(b"a", b"1")], producer=(5, 0, 0)) == AppendResult(0, 0, duplicate=True)


async def test_the_empty_batches_of_an_expired_producer_are_removed() -> None:
    data = DataDirectory(COMPACTED)
    data.append([(b"a", b"1")], producer=(5, 0, 0))
    data.append([(b"a", b"2")])
    data.log.roll()
    data.log.producers.expire(data.now_ms + 10, 5)
    await clean(data)
    assert batches_of(data.log) == [(1, 1, 1)]


def test_an_emptied_batch_is_byte_for_byte_kafkas() -> None:
    wanted = bytes.fromhex(
        "0000000000000009000000310000000002e0675809000000000002ffffffffffffffff0000018bcfe568"
        "0700000000000004d200020000000500000000"
    )
    header = read_header(wanted)
    assert rebuild_batch(header, []) == wanted


# Transactions


def marker(control_type: ControlType, producer_id: int) -> bytes:
    return build_marker(EndTxnMarker(control_type, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)


def transactional() -> DataDirectory:
    """Producer 7 writes a@0 and commits (marker 1); producer 8 writes a@2 and aborts (marker 3); b@4 follows."""
    data = DataDirectory.of_batches(
        COMPACTED,
        [
            batch_of([(b"a", b"committed")], producer=(7, 0, 0), is_transactional=True),
            marker(ControlType.COMMIT, 7),
            batch_of([(b"a", b"aborted")], producer=(8, 0, 0), is_transactional=True),
            marker(ControlType.ABORT, 8),
            batch_of([(b"b", b"1")]),
        ],
    )
    data.log.roll()
    data.log.producers.expire(data.now_ms + 10, 5)
    return data


async def test_aborted_records_are_removed_and_outdate_no_value() -> None:
    data = transactional()
    await clean(data)
    assert batches_of(data.log) == [(0, 0, 1), (1, 1, 1), (3, 3, 1), (4, 4, 1)]
    assert (0, b"a", b"committed") in pairs_of(data.log)


@pytest.mark.proves("compaction-of-transactions")
async def test_a_marker_stays_while_its_data_remains_and_then_until_its_horizon() -> None:
    data = transactional()
    done = await clean(data)
    data.now_ms += HOUR_MS
    fill(data, [(b"c", b"1")])
    done = await clean(data, done.end_offset)
    assert [base for base, _, _ in batches_of(data.log)] == [0, 1, 3, 4, 5], "of 8 nothing was left only since then"
    data.now_ms += HOUR_MS
    fill(data, [(b"a", b"2")])
    done = await clean(data, done.end_offset)
    assert [base for base, _, _ in batches_of(data.log)] == [1, 4, 5, 6], "the commit marker lost its data just now"
    for _ in range(2):
        data.now_ms += HOUR_MS
        fill(data, [(b"d", b"1")])
        done = await clean(data, done.end_offset)
    assert [base for base, _, _ in batches_of(data.log)] == [4, 5, 6, 8]


async def test_a_fencing_marker_that_is_the_last_batch_of_its_producer_stays() -> None:
    data = DataDirectory.of_batches(COMPACTED, [marker(ControlType.ABORT, 9)])
    fill(data, [(b"a", b"1")])
    done = await clean(data)
    data.now_ms += HOUR_MS
    fill(data, [(b"b", b"1")])
    await clean(data, done.end_offset)
    assert batches_of(data.log)[0] == (0, 0, 1), "with its record: aiokafka cannot read an empty control batch"


# Failures


async def test_a_batch_that_fails_its_crc_stops_compaction_and_changes_nothing() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, [(b"a", b"1")], [(b"a", b"2")])
    path = f"{data.directory}/{0:020d}.log"
    damaged = bytearray(data.disk.read_bytes(path))
    damaged[-2] ^= 1
    data.disk.overwrite(path, damaged)
    names = data.disk.listdir(data.directory)
    with pytest.raises(CorruptBatch, match="offset 0"):
        await clean(data)
    assert [name for name in data.disk.listdir(data.directory) if name in names] == names
    assert not [name for name in data.disk.listdir(data.directory) if ".cleaned" in name]


async def test_records_deleted_during_a_round_end_it_and_the_log_is_complete() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, *[[(b"k%d" % n, b"x" * 30_000), (b"j", b"%d" % n)] for n in range(8)])
    await data.log.durability.checkpoint()
    pauses = 0

    async def delete_some() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 6:
            data.log.delete_records_before(3)

    with pytest.raises(CompactionAborted):
        await compact(
            data.log,
            dirty_part(data.log),
            now_ms=data.now_ms,
            keys_max=100,
            held_by_all=data.log.end_offset,
            pause=delete_some,
        )
    assert not [name for name in data.disk.listdir(data.directory) if ".cleaned" in name or ".swap" in name]
    assert [offset for offset, _, _ in pairs_of(data.log)] == list(range(3, 16))


async def test_compaction_pauses_in_proportion_to_the_bytes() -> None:
    data = DataDirectory(COMPACTED)
    fill(data, *[[(b"k%d" % (n % 3), b"x" * 10_000)] for n in range(64)])
    pauses = 0

    async def count() -> None:
        nonlocal pauses
        pauses += 1

    await data.log.durability.checkpoint()
    await compact(
        data.log, dirty_part(data.log), now_ms=data.now_ms, keys_max=100, held_by_all=data.log.end_offset, pause=count
    )
    assert pauses >= 2 * 640_000 // 65_536


def test_records_keep_their_bytes_through_a_rewrite() -> None:
    """The filter decodes and rebuilds batches: no byte of a record may change."""
    data = DataDirectory(COMPACTED)
    data.append([(b"a", b"1"), (b"b", None), (b"", b"")], timestamp_ms=1)
    (header, batch) = next(iterate(data.log.read(0, up_to=3, bytes_max=4096)))
    records: list[Record] = decode_batch(batch, header)
    again = rebuild_batch(header, records[1:], delete_horizon_ms=10**12)
    assert decode_batch(again) == records[1:]


async def test_a_log_that_begins_anew_during_a_round_ends_it() -> None:
    """Between two steps of the restart its segments are still listed, but their files are deleted."""
    data = DataDirectory(COMPACTED)
    fill(data, *[[(b"k%d" % n, b"x" * 30_000), (b"j", b"%d" % n)] for n in range(8)])
    await data.log.durability.checkpoint()
    steps = data.log.restart(100)
    pauses = 0

    async def begin_anew() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 6:
            next(steps)
            next(steps)

    with pytest.raises(CompactionAborted):
        await compact(data.log, dirty_part(data.log), now_ms=NOW_MS, keys_max=1000, held_by_all=16, pause=begin_anew)
    assert pauses == 6
    for _ in steps:
        await data.disk.settle(data.directory)
    assert (data.log.start_offset, data.log.end_offset) == (100, 100)
    assert not [name for name in data.disk.listdir(data.directory) if ".cleaned" in name]
