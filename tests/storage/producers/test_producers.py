"""Producer state: the pure functions, and a log with restarts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_protocol.batch import read_header
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.producers import producers
from semel_storage.producers.producers import ProducerState
from semel_storage.segments.log_config import LogConfig
from storage.batches import DIRECTORY, NOW_MS, make_batch, open_log, put

LAST = 2**31 - 1
PID = 77


def after(*batches: bytes) -> ProducerState:
    state: ProducerState | None = None
    offset = 0
    for batch in batches:
        header = read_header(batch)
        assert header.is_control or producers.check(state, header) is None
        state = producers.apply(state, header, offset, batch, NOW_MS)
        offset += header.last_offset_delta + 1
    assert state is not None
    return state


def batch(sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    return make_batch(count, producer_id=PID, epoch=epoch, sequence=sequence)


def code_of(state: ProducerState | None, sent: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        producers.check(state, read_header(sent))
    return refused.value.code


def is_next(state: ProducerState | None, sent: bytes) -> bool:
    return producers.check(state, read_header(sent)) is None


@pytest.mark.parametrize("sequence", [0, 1, 4711, LAST])
def test_producer_without_state_may_start_anywhere(sequence: int) -> None:
    assert is_next(None, batch(sequence))


def test_next_sequence_is_one_after_the_last(disk: MemoryDisk) -> None:
    state = after(batch(0, 3), batch(3, 2))
    assert is_next(state, batch(5))
    assert code_of(state, batch(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.proves("sequence-wraps")
def test_sequence_wraps_from_int32_max_to_zero() -> None:
    state = after(batch(LAST))
    assert is_next(state, batch(0))
    assert code_of(state, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state = after(batch(LAST - 1), batch(LAST, 3))  # covers LAST, 0, 1
    assert state.last_sequence == 1
    assert is_next(state, batch(2))
    known = producers.check(state, read_header(batch(LAST, 3)))
    assert known is not None
    assert known.base_offset == 1


@pytest.mark.proves("duplicate-window")
@pytest.mark.parametrize("start", [0, 1000, LAST - 5, LAST - 1])
def test_duplicate_window_is_five_batches(start: int) -> None:
    """The retry of the 5th last batch is a duplicate; the offset of the 6th last is not known any more."""
    sent = [batch((start + 2 * n) & LAST, 2) for n in range(9)]
    state = after(*sent)
    for back in range(1, 6):
        place = producers.check(state, read_header(sent[-back]))
        assert place is not None
        assert place.base_offset == 2 * (9 - back)
        assert place.timestamp == NOW_MS
    for back in range(6, 10):
        assert code_of(state, sent[-back]) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_old_sequence_that_was_never_seen_is_out_of_order() -> None:
    """A state that starts at 100 does not know whether 50 was appended: a success could lose the batch."""
    state = after(*(batch(100 + n) for n in range(9)))
    assert code_of(state, batch(50)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(state, batch(99)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(state, batch(100)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_with_other_boundaries_is_not_a_duplicate() -> None:
    state = after(batch(0, 2), batch(2, 2))
    assert code_of(state, batch(3, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(state, batch(2, 3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.proves("first-sequence-of-an-epoch")
def test_new_epoch_must_start_at_zero() -> None:
    state = after(batch(0), batch(1))
    assert is_next(state, batch(0, epoch=1))
    for sequence in (1, 2, LAST):
        assert code_of(state, batch(sequence, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state = after(batch(0), batch(1), batch(0, epoch=3))
    assert (state.epoch, state.last_sequence, len(state.batches)) == (3, 0, 1)


def test_older_epoch_is_fenced() -> None:
    state = after(batch(0, epoch=2))
    for sequence in (0, 1):
        assert code_of(state, batch(sequence, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_non_transactional_batch_during_an_open_transaction_is_refused() -> None:
    state = after(make_batch(producer_id=PID, sequence=0, is_transactional=True))
    assert state.txn_first_offset == 0
    assert code_of(state, batch(1)) == ErrorCode.INVALID_TXN_STATE
    assert is_next(state, make_batch(producer_id=PID, sequence=1, is_transactional=True))


def marker(epoch: int, coordinator_epoch: int = 4) -> bytes:
    kind = EndTxnMarker(ControlType.COMMIT, coordinator_epoch)
    return build_marker(kind, producer_id=PID, producer_epoch=epoch, timestamp_ms=NOW_MS)


def test_marker_ends_the_transaction_and_keeps_the_sequences() -> None:
    state = after(make_batch(2, producer_id=PID, sequence=0, is_transactional=True), marker(0))
    assert (state.txn_first_offset, state.coordinator_epoch, state.last_sequence) == (-1, 4, 1)
    assert is_next(state, batch(2))


@pytest.mark.proves("retry-after-the-end")
def test_sequences_of_an_ended_transaction_are_not_a_retry() -> None:
    """A client that forgets batches which were stored gives their sequences to others: those must not count as stored.

    librdkafka does so when a transaction is aborted while a batch waits to be sent again.
    """

    def transactional(sequence: int) -> bytes:
        return make_batch(1, producer_id=PID, epoch=0, sequence=sequence, is_transactional=True)

    amid = after(transactional(0))
    assert producers.check(amid, read_header(transactional(0))) is not None
    ended = after(transactional(0), marker(0))
    assert code_of(ended, transactional(0)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert is_next(ended, transactional(1))
    amid_next = after(transactional(0), marker(0), transactional(1))
    assert code_of(amid_next, transactional(0)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert producers.check(amid_next, read_header(transactional(1))) is not None
    long_ended = after(*map(transactional, range(9)), marker(0), transactional(9))
    assert code_of(long_ended, transactional(0)) == ErrorCode.UNKNOWN_PRODUCER_ID
    still_open = after(*map(transactional, range(9)))
    assert code_of(still_open, transactional(0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_marker_of_a_bumped_epoch_restarts_sequences() -> None:
    state = after(make_batch(2, producer_id=PID, sequence=0, is_transactional=True), marker(1))
    assert (state.epoch, state.batches) == (1, ())
    assert is_next(state, batch(0, epoch=1))
    assert code_of(state, batch(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(state, batch(2, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    start=st.sampled_from([0, 5, LAST - 20, LAST]),
)
def test_every_batch_is_next_once_and_then_duplicate_or_old(counts: list[int], start: int) -> None:
    state: ProducerState | None = None
    sequence, sent = start, []
    for count in counts:
        one = batch(sequence, count)
        assert is_next(state, one)
        state = producers.apply(state, read_header(one), 0, one, NOW_MS)
        sequence = (sequence + count) & LAST
        sent.append(one)
        for back, earlier in enumerate(reversed(sent), start=1):
            if back <= 5:
                assert producers.check(state, read_header(earlier)) is state.batches[-back]
            else:
                assert code_of(state, earlier) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


# Through a log


@pytest.mark.proves("duplicate-window")
@pytest.mark.parametrize("restart", ["none", "close", "kill", "snapshot and kill"])
def test_duplicate_window_holds_across_a_restart(disk: MemoryDisk, restart: str) -> None:
    log = open_log(disk)
    for n in range(9):
        put(log, batch(n))
    put(log, make_batch(producer_id=PID + 1, sequence=40))
    if restart == "close":
        log.close()
        log = open_log(disk, recovery_point=10)
    elif restart == "kill":
        disk.kill()
        log = open_log(disk, recovery_point=0)
    elif restart == "snapshot and kill":
        log.durability.write_snapshot()
        put(log, batch(9))
        disk.kill()
        log = open_log(disk, recovery_point=10)
    end = log.end_offset
    newest = 9 if restart == "snapshot and kill" else 8
    for back in range(5):
        result = put(log, batch(newest - back))
        expected = 10 if newest - back == 9 else newest - back
        assert (result.base_offset, result.duplicate, result.log_append_time_ms) == (expected, True, -1)
    with pytest.raises(KafkaError) as refused:
        put(log, batch(newest - 5))
    assert refused.value.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert log.end_offset == end
    assert not put(log, batch(newest + 1)).duplicate


def test_a_duplicate_returns_its_first_append_time(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig(message_timestamp_type="LogAppendTime"))
    put(log, batch(0), now_ms=1000)
    assert put(log, batch(0), now_ms=2000).log_append_time_ms == 1000


@pytest.mark.proves("retention-of-a-last-batch")
def test_retention_of_a_producers_last_batch_does_not_lose_its_place(disk: MemoryDisk) -> None:
    """The next batch is accepted, and a retry is still a duplicate."""
    log = open_log(disk, LogConfig(segment_bytes=200))
    for n in range(4):
        put(log, batch(n))
    for _ in range(8):
        put(log, make_batch())
    log.delete_records_before(10)
    assert log.segments[0].base_offset > 4
    log = reopened(disk, log)
    assert put(log, batch(3)).duplicate
    assert put(log, batch(4)).base_offset == 12


@pytest.mark.proves("retention-of-a-last-batch")
@pytest.mark.parametrize("crashes", [1, 2])
def test_retention_right_after_a_crash_does_not_lose_a_producers_place(disk: MemoryDisk, crashes: int) -> None:
    log = open_log(disk, LogConfig(segment_bytes=200))
    put(log, batch(0))
    for _ in range(8):
        put(log, make_batch())
    for _ in range(crashes):
        disk.kill()
        log = open_log(disk, log.config, recovery_point=0)
    log.delete_records_before(6)
    assert log.segments[0].base_offset > 0
    disk.crash()
    log = open_log(disk, log.config, recovery_point=0, start_offset=6)
    assert put(log, batch(0)).duplicate
    assert put(log, batch(1)).base_offset == 9


async def test_retention_after_the_snapshots_were_lost_does_not_lose_a_producers_place(disk: MemoryDisk) -> None:
    """Snapshots are not synced: after a power loss only the segments may contain the producer."""
    log = open_log(disk, LogConfig(segment_bytes=200))
    put(log, batch(0))
    for _ in range(8):
        put(log, make_batch())
    await log.durability.checkpoint()
    disk.crash()
    snapshots = [name for name in disk.listdir(DIRECTORY) if name.endswith(".snapshot")]
    assert not any(disk.size(f"{DIRECTORY}/{name}") for name in snapshots)
    log = open_log(disk, log.config, recovery_point=9)
    log.delete_records_before(6)
    disk.crash()
    log = open_log(disk, log.config, recovery_point=9, start_offset=6)
    assert put(log, batch(0)).duplicate


def reopened(disk: MemoryDisk, log: Log) -> Log:
    log.close()
    return open_log(disk, log.config, recovery_point=log.end_offset, start_offset=log.start_offset)


def test_expiry_uses_the_brokers_clock_and_keeps_open_transactions(disk: MemoryDisk) -> None:
    log = open_log(disk)
    put(log, make_batch(timestamps=[5], producer_id=1), now_ms=1000)
    put(log, make_batch(timestamps=[5], producer_id=2), now_ms=1500)
    put(log, make_batch(producer_id=3, is_transactional=True), now_ms=1000)
    log.producers.expire(1999, 1000)
    assert [state.producer_id for state in log.producers.all()] == [1, 2, 3]
    log = reopened(disk, log)
    log.producers.expire(2000, 1000)
    assert [state.producer_id for state in log.producers.all()] == [2, 3]
    assert put(log, make_batch(producer_id=1, sequence=99)).base_offset == 3


def test_a_refused_batch_changes_nothing(disk: MemoryDisk) -> None:
    log = open_log(disk)
    put(log, batch(0))
    before = log.producers.all()
    with pytest.raises(KafkaError):
        put(log, batch(5))
    assert log.producers.all() == before
    assert log.end_offset == 1
