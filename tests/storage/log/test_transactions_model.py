"""Transactions in a log compared with a list, after truncations and crashes."""

import asyncio
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from semel_protocol.batch import iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import decode_batch
from semel_storage.compaction.retention import apply_retention
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log_directory import LogDirectory
from semel_storage.producers.transactions import PAIR, AbortedTransaction, encode
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch, put

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=200)
PRODUCERS = (1, 2, 3)
MINUTE_MS = 60_000


class ModelBatch(msgspec.Struct, frozen=True):
    """One batch of the list: records (`count` of one value), or a marker (`commit` is not None)."""

    base: int
    count: int
    value: bytes = b""
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    commit: bool | None = None

    @property
    def last(self) -> int:
        return self.base + self.count - 1


class ModelTransaction(msgspec.Struct):
    """A transaction of the list; `marker` is -1 while it is open."""

    producer_id: int
    first: int
    marker: int = -1
    commit: bool = False


def spans(entries: list[ModelBatch]) -> list[ModelTransaction]:
    found: list[ModelTransaction] = []
    for entry in entries:
        mine = next((s for s in found if s.producer_id == entry.producer_id and s.marker < 0), None)
        if entry.commit is not None and mine is not None:
            mine.marker, mine.commit = entry.base, entry.commit
        elif entry.is_transactional and entry.commit is None and mine is None:
            found.append(ModelTransaction(entry.producer_id, entry.base))
    return found


def index_entries(entries: list[ModelBatch]) -> list[AbortedTransaction]:
    """The expected entries of all `.txnindex` files."""
    every = spans(entries)
    found = []
    for span in sorted(every, key=lambda s: s.marker):
        if span.marker >= 0 and not span.commit:
            still_open = [s.first for s in every if s.first < span.marker and not 0 <= s.marker <= span.marker]
            stable = min(still_open, default=span.marker + 1)
            found.append(AbortedTransaction(span.producer_id, span.first, span.marker, stable))
    return found


def read_as_client(log: Log, offset: int, stable: int, bytes_max: int) -> Iterator[tuple[int, bytes | None]]:
    """Records that a read_committed consumer returns, by aborted lists and abort markers."""
    while offset < stable:
        data, aborted = log.read_committed(offset, up_to=stable, bytes_max=bytes_max)
        assert data, f"nothing at {offset}, stable up to {stable}"
        coming = [PAIR.unpack(pair) for pair in aborted]
        assert coming == sorted(coming, key=itemgetter(1))
        active: list[int] = []
        for header, batch in iterate(data):
            while coming and coming[0][1] <= header.last_offset:
                active.append(coming.pop(0)[0])
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and marker.control_type is ControlType.ABORT and header.producer_id in active:
                    active.remove(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                yield from ((r.offset, r.value) for r in decode_batch(batch) if r.offset >= offset)
            next_offset = header.next_offset
        offset = next_offset


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.directory: Any = None
        self.log: Any = None
        self.entries: list[ModelBatch] = []
        self.high_watermark = 0
        self.written = 0
        self.now_ms = NOW_MS

    @initialize()
    def create(self) -> None:
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        self.log = self.directory.open_log("t", 0, CONFIG, now_ms=NOW_MS, checkpoint_bytes=2500)
        self.cut(self.log.end_offset)
        self.high_watermark = self.log.end_offset

    @property
    def end(self) -> int:
        return self.entries[-1].last + 1 if self.entries else 0

    def cut(self, end: int) -> None:
        self.entries = [entry for entry in self.entries if entry.last < end]
        self.high_watermark = min(self.high_watermark, end)

    def last_of(self, producer_id: int) -> ModelBatch:
        """The producer's last batch or marker."""
        none = ModelBatch(0, 1, producer_id=producer_id, epoch=0, sequence=-1)
        return next((e for e in reversed(self.entries) if e.producer_id == producer_id), none)

    def next_sequence(self, producer_id: int) -> int:
        epoch = self.last_of(producer_id).epoch
        mine = [e for e in self.entries if (e.producer_id, e.epoch, e.commit) == (producer_id, epoch, None)]
        return mine[-1].sequence + mine[-1].count if mine else 0

    def is_open(self, producer_id: int) -> bool:
        return any(s.producer_id == producer_id and s.marker < 0 for s in spans(self.entries))

    @rule(count=st.integers(1, 3), producer_id=st.sampled_from((-1, *PRODUCERS)), transactional=st.booleans())
    def append(self, count: int, producer_id: int, transactional: bool) -> None:
        self.written += 1
        value = b"%d" % self.written + b"x" * (self.written % 7 * 20)
        if producer_id < 0:
            put(self.log, make_batch(count, value=value))
            self.entries.append(ModelBatch(self.end, count, value))
            return
        epoch, sequence = self.last_of(producer_id).epoch, self.next_sequence(producer_id)
        batch = make_batch(
            count,
            value=value,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            is_transactional=transactional,
        )
        if self.is_open(producer_id) and not transactional:
            with pytest.raises(KafkaError) as refused:
                put(self.log, batch)
            assert refused.value.code == ErrorCode.INVALID_TXN_STATE
            return
        assert put(self.log, batch).base_offset == self.end
        self.entries.append(ModelBatch(self.end, count, value, producer_id, epoch, sequence, transactional))

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool, bump: bool) -> None:
        last = self.last_of(producer_id)
        epoch = last.epoch + bump
        result = self.log.append_marker(producer_id, epoch, commit, 1, leader_epoch=0, now_ms=NOW_MS)
        if last.commit is commit and not bump:
            assert (result.base_offset, result.duplicate) == (last.base, True)
            return
        assert (result.base_offset, result.last_offset, result.duplicate) == (self.end, self.end, False)
        self.entries.append(ModelBatch(self.end, 1, b"", producer_id, epoch, -1, True, commit))

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def zombies_marker(self, producer_id: int, commit: bool) -> None:
        epoch = self.last_of(producer_id).epoch
        if epoch > 0:
            with pytest.raises(KafkaError) as refused:
                self.log.append_marker(producer_id, epoch - 1, commit, 1, leader_epoch=0, now_ms=NOW_MS)
            assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH

    @rule()
    def sync(self) -> None:
        asyncio.run(self.log.durability.sync())
        self.high_watermark = self.end

    @rule()
    def checkpoint(self) -> None:
        asyncio.run(self.directory.checkpoint())

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(back=st.integers(1, 8))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.log.start_offset, self.end - back))
        self.cut(self.log.end_offset)
        assert self.log.end_offset == self.end or not self.entries
        self.log_is_lower()

    def log_is_lower(self) -> None:
        """An empty log keeps its offset; the list needs a batch for it."""
        if self.end < self.log.end_offset:
            put(self.log, make_batch())
            self.entries.append(ModelBatch(self.log.end_offset - 1, 1, b"v"))

    @rule(back=st.integers(0, 10))
    def delete_records(self, back: int) -> None:
        self.log.delete_records_before(max(self.log.start_offset, self.high_watermark - back))

    @rule()
    def retain_little(self) -> None:
        self.log.config = LogConfig(segment_bytes=1200, index_interval_bytes=200, retention_bytes=2000)
        apply_retention(self.log, high_watermark=self.high_watermark, now_ms=NOW_MS)
        self.log.config = CONFIG

    @rule()
    def restart(self) -> None:
        self.directory.close()
        self.open()
        self.log_is_lower()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        end = self.end
        self.open()
        assert self.end == end, "a killed process loses nothing"
        self.log_is_lower()

    @rule()
    def power_loss(self) -> None:
        asyncio.run(self.log.durability.sync())
        durable = self.end
        self.append(1, 1, True)
        self.disk.crash()
        self.open()
        assert self.end >= durable
        self.log_is_lower()

    @rule(at=st.integers(0, 30))
    def lose_an_index(self, at: int) -> None:
        """Kill the process and remove a transaction index; recovery rebuilds it."""
        asyncio.run(self.directory.checkpoint())
        self.disk.kill()
        names = [name for name in self.disk.listdir("data/t-0") if name.endswith(".txnindex")]
        if names:
            self.disk.remove(f"data/t-0/{names[at % len(names)]}")
        self.open()
        self.log_is_lower()

    @invariant()
    def stable_offset_is_the_lists(self) -> None:
        if self.log is None:
            return
        unstable = [s.first for s in spans(self.entries) if s.marker < 0 or s.marker >= self.high_watermark]
        assert self.log.producers.transactions.first_unstable_offset(self.high_watermark) == min(unstable, default=None)
        for producer_id in PRODUCERS:
            state = self.log.producers.get(producer_id)
            first = next((s.first for s in spans(self.entries) if s.producer_id == producer_id and s.marker < 0), -1)
            assert (state.txn_first_offset if state is not None else -1) == first

    @invariant()
    def indexes_are_kafkas(self) -> None:
        if self.log is None:
            return
        expected = index_entries(self.entries)
        for segment in self.log.segments:
            mine = [a for a in expected if segment.base_offset <= a.last_offset < segment.next_offset]
            data = self.disk.read_bytes(segment.aborted.path) if self.disk.exists(segment.aborted.path) else b""
            assert data == b"".join(encode(each) for each in mine)

    @rule(skip=st.integers(0, 20), bytes_max=st.sampled_from([1, 300, 5000]))
    def read(self, skip: int, bytes_max: int) -> None:
        stable = self.log.producers.transactions.first_unstable_offset(self.high_watermark)
        stable = self.high_watermark if stable is None else min(stable, self.high_watermark)
        start = self.log.start_offset + skip
        aborted = [s for s in spans(self.entries) if s.marker >= 0 and not s.commit]
        expected = [
            (offset, entry.value)
            for entry in self.entries
            for offset in range(entry.base, entry.base + entry.count)
            if start <= offset < stable and entry.commit is None
            if not entry.is_transactional
            or not any(s.producer_id == entry.producer_id and s.first <= offset < s.marker for s in aborted)
        ]
        assert list(read_as_client(self.log, start, stable, bytes_max)) == expected


TransactionMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_transactions_in_a_log_are_those_of_the_list = TransactionMachine.TestCase
