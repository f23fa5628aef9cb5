"""Compaction of logs with transactions: readers see all committed and no aborted records."""

from random import Random

import pytest
from semel_protocol.batch import read_header
from semel_storage.compaction.compaction import compact, dirtiness
from semel_storage.segments.log_config import LogConfig
from storage.log.test_transactions_model import read_as_client
from support.logs import DataDirectory, batch_of, no_pause

COMPACTED = LogConfig(
    cleanup_policy=("compact",), delete_retention_ms=1000, segment_bytes=2000, index_interval_bytes=100
)
HOUR_MS = 3_600_000


class TransactionalData(DataDirectory):
    """Writes of transactional producers of epoch 0, with their sequences."""

    def write(self, producer_id: int, key: bytes, value: bytes) -> int:
        state = self.log.producers.get(producer_id)
        sequence = state.last_sequence + 1 if state is not None else 0
        batch = batch_of([(key, value)], producer=(producer_id, 0, sequence), is_transactional=True)
        return self.log.append(batch, header=read_header(batch), leader_epoch=0, now_ms=self.now_ms).base_offset

    def end(self, producer_id: int, commit: bool) -> int:
        return self.log.append_marker(producer_id, 0, commit, 0, leader_epoch=0, now_ms=self.now_ms).base_offset

    @property
    def stable(self) -> int:
        first = self.log.producers.transactions.first_unstable_offset(self.log.end_offset)
        return self.log.end_offset if first is None else first

    async def clean(self, held_by_all: int | None = None) -> None:
        await self.log.durability.checkpoint()
        held_by_all = self.log.end_offset if held_by_all is None else held_by_all
        dirty = dirtiness(self.log, 0, last_stable_offset=self.stable, now_ms=self.now_ms)
        await compact(self.log, dirty, now_ms=self.now_ms, keys_max=1000, held_by_all=held_by_all, pause=no_pause)

    def visible(self) -> list[bytes | None]:
        return [value for _, value in read_as_client(self.log, self.log.start_offset, self.stable, 500)]

    def batches(self) -> list[tuple[int, int]]:
        """(base offset, records) of each batch in the log."""
        return [(h.base_offset, h.record_count) for segment in self.log.segments for _, h, _ in segment.scan()]

    def index(self) -> list[tuple[int, int, int]]:
        found = self.log.aborted_transactions(0, self.log.end_offset)
        return [(a.producer_id, a.first_offset, a.last_offset) for a in found]


@pytest.mark.parametrize("start", ["none", "clean", "kill", "power loss"])
async def test_the_index_entry_is_removed_after_its_data_and_before_its_marker(start: str) -> None:
    """With an entry without its marker, a reader would drop later committed records of the producer."""
    data = TransactionalData(COMPACTED)
    data.write(7, b"a", b"aborted")
    data.end(7, False)
    for value in (b"1", b"2", b"3", b"4", b"committed"):  # the retry of an aborted batch is no longer waited for
        data.write(7, b"b", value)
    data.end(7, True)
    seen = []
    for _ in range(4):
        data.log.roll()
        await data.clean()
        if start == "clean":
            data.restart()
        elif start == "kill":
            data.kill_and_open()
        elif start == "power loss":
            data.crash_and_open()
        assert data.visible() == [b"committed"]
        offsets = [base for base, _ in data.batches()]
        seen.append((0 in offsets, bool(data.index()), 1 in offsets))
        data.now_ms += HOUR_MS
    in_order = [(False, True, True), (False, False, True), (False, False, False)]
    assert seen[0] == in_order[0] or start in ("kill", "power loss")
    assert seen == sorted(seen, reverse=True), "they go one after the other"
    assert seen[-1] == in_order[-1]


@pytest.mark.proves("compaction-of-transactions")
async def test_compaction_keeps_records_above_the_last_stable_offset() -> None:
    data = TransactionalData(COMPACTED)
    data.append([(b"k", b"old")])
    data.log.roll()
    data.write(7, b"k", b"undecided")
    data.log.roll()
    data.append([(b"k", b"new")])
    data.log.roll()
    await data.clean()
    assert [base for base, _ in data.batches()] == [0, 1, 2], "an undecided value outdates nothing, nor is it outdated"
    data.end(7, False)
    data.log.roll()
    await data.clean()
    assert data.visible() == [b"new"]


@pytest.mark.proves("replica-away-for-long")
@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_that_a_replica_may_lack_stays_at_any_age(commit: bool) -> None:
    """Without the marker the transaction would stay open on that replica forever."""
    data = TransactionalData(COMPACTED)
    data.write(7, b"b", b"outdated")
    marker = data.end(7, commit)
    for value in (b"1", b"2", b"3", b"4", b"5"):  # the retry of the first batch is no longer waited for
        data.write(7, b"b", value)
    data.end(7, True)
    for _ in range(4):
        data.log.roll()
        await data.clean(held_by_all=marker)
        assert marker in [base for base, _ in data.batches()]
        data.now_ms += HOUR_MS
    await data.clean(held_by_all=marker + 1)
    assert marker not in [base for base, _ in data.batches()]


@pytest.mark.proves("compaction-of-transactions")
async def test_a_marker_stays_as_long_as_any_batch_of_its_transaction() -> None:
    data = TransactionalData(COMPACTED)
    data.write(7, b"a", b"1")
    data.write(7, b"b", b"1")
    marker = data.end(7, True)
    data.write(8, b"x", b"1")  # so that 7's sequences are not what keeps them
    data.end(8, True)
    data.log.roll()
    for n in range(3):
        data.append([(b"a", b"%d" % n)])
        data.log.roll()
        data.now_ms += HOUR_MS
        await data.clean()
        assert marker in [base for base, _ in data.batches()]
        assert b"1" in data.visible()


async def test_a_merged_segment_has_the_index_entries_of_all_its_parts() -> None:
    data = TransactionalData(COMPACTED)
    for n in range(5):
        data.write(7, b"k%d" % n, b"no")
        data.end(7, False)
        data.append([(b"p%d" % n, b"yes")])
        data.log.roll()
    before = data.index()
    await data.clean()
    assert len(data.log.segments) == 2
    assert data.index() == before
    data.kill_and_open()
    assert data.visible() == [b"yes"] * 5


@pytest.mark.parametrize("seed", range(25))
async def test_readers_of_committed_records_find_the_last_committed_value_of_each_key(seed: int) -> None:
    """After random transactions, compaction, restarts, kills and power losses, a reader sees the right values."""
    random = Random(seed)
    data = TransactionalData(COMPACTED)
    committed: list[tuple[int, bytes, bytes]] = []
    pending: dict[int, list[tuple[int, bytes, bytes]]] = {}
    for n in range(150):
        producer_id = random.randrange(4)
        key, value = b"k%d" % random.randrange(8), b"%d" % n
        match random.choices(range(7), [40, 18, 8, 6, 1, 1, 1])[0]:
            case 0:
                offset = data.write(producer_id, key, value)
                pending.setdefault(producer_id, []).append((offset, key, value))
            case 1:
                commit = random.random() < 0.6
                data.end(producer_id, commit)
                committed += pending.pop(producer_id, []) if commit else []
                pending.pop(producer_id, None)
            case 2:
                data.log.roll()
            case 3:
                data.now_ms += random.choice([0, HOUR_MS])
                await data.clean()
            case 4:
                data.restart()
            case 5:
                data.kill_and_open()
            case 6:
                await data.log.durability.sync()
                data.crash_and_open()
        stable = data.stable
        assert stable == min((rows[0][0] for rows in pending.values()), default=data.log.end_offset)
        below = sorted(row for row in committed if row[0] < stable)
        latest = {key: value for _, key, value in below}
        found = data.visible()
        assert set(latest.values()) <= set(found)
        assert set(found) <= {value for _, _, value in below}
