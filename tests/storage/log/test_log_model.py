"""A log compared with a list: after any operations and crashes it has the same records."""

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log_directory import LogDirectory
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, headers_of, make_batch, put, read_all

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300)
PRODUCER = 7


class LogMachine(RuleBasedStateMachine):
    """`batches`: (base offset, values, sequence) of each batch that the log should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.directory: Any = None
        self.log: Any = None
        self.batches: list[tuple[int, list[bytes], int]] = []
        self.start = 0
        self.end = 0
        self.durable = 0
        self.sequence = 0
        self.written = 0

    @initialize()
    def create(self) -> None:
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        self.log = self.directory.open_log("t", 0, CONFIG, now_ms=NOW_MS, checkpoint_bytes=6000)

    @rule(count=st.integers(1, 4), size=st.sampled_from([1, 50, 700, 1500]), idempotent=st.booleans())
    def append(self, count: int, size: int, idempotent: bool) -> None:
        size = min(size, 3500 // count)
        self.written += 1
        value = b"%d-" % self.written + b"x" * size
        sequence = self.sequence if idempotent else -1
        batch = make_batch(count, value=value, producer_id=PRODUCER if idempotent else -1, sequence=sequence)
        assert put(self.log, batch).base_offset == self.end
        self.batches.append((self.end, [value] * count, sequence))
        self.end += count
        if idempotent:
            self.sequence += count

    @rule(back=st.integers(1, 5))
    def retry(self, back: int) -> None:
        """A retry of one of the last five batches returns the offsets of the first append."""
        mine = [batch for batch in self.batches if batch[2] >= 0][-back:]
        if len(mine) < back:
            return
        base, values, sequence = mine[0]
        result = put(self.log, make_batch(len(values), value=values[0], producer_id=PRODUCER, sequence=sequence))
        assert result.duplicate
        assert (result.base_offset, result.last_offset) == (base, base + len(values) - 1)

    @rule(ahead=st.integers(1, 100))
    def gap(self, ahead: int) -> None:
        if not self.sequence:
            return
        with pytest.raises(KafkaError) as refused:
            put(self.log, make_batch(producer_id=PRODUCER, sequence=self.sequence + ahead))
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def sync(self) -> None:
        asyncio.run(self.log.durability.sync())
        assert self.log.durability.synced_offset == self.end
        self.durable = self.end

    @rule()
    def checkpoint(self) -> None:
        asyncio.run(self.directory.checkpoint())
        assert self.log.durability.recovery_point == self.end
        self.durable = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        asyncio.run(self.log.durability.sync())
        self.durable = self.end
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.delete_records_before(self.start)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        self.cut(next((base for base, values, _ in self.batches if base + len(values) > offset), offset))
        self.start = min(self.start, self.end)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        up_to = data.draw(st.integers(offset, self.end))
        bytes_max = data.draw(st.sampled_from([1, 300, 5000, 1 << 20]))
        found = self.log.read(offset, up_to=up_to, bytes_max=bytes_max)
        headers = headers_of(found)
        assert len(found) <= bytes_max or len(headers) == 1
        bases = [base for base, values, _ in self.batches if base + len(values) > offset]
        readable = [base for base, values, _ in self.batches if base in bases and base + len(values) <= up_to]
        assert [header.base_offset for header in headers] == readable[: len(headers)]
        assert headers or not readable

    @rule()
    def close_and_open(self) -> None:
        self.directory.close()
        self.durable = self.end
        self.open()

    @rule()
    def kill(self) -> None:
        """Kill the process: all written data remains, and recovery makes it durable."""
        self.disk.kill()
        self.open()
        self.durable = self.end

    @rule(seed=st.none() | st.integers(0, 2**32))
    def lose_power(self, seed: int | None) -> None:
        """Cut the power: all durable data remains, and a prefix of complete batches of the rest."""
        self.disk.crash(None if seed is None else Random(seed))
        self.open()
        assert self.durable <= self.log.end_offset <= self.end
        assert self.log.end_offset in [self.start, *(base + len(values) for base, values, _ in self.batches)]
        self.cut(self.log.end_offset)
        self.durable = self.end

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch[0] < end]
        self.end = end
        self.durable = min(self.durable, end)
        self.sequence = max((seq + len(values) for _, values, seq in self.batches if seq >= 0), default=0)
        if not any(seq >= 0 for _, _, seq in self.batches):
            self.sequence = next((s.last_sequence + 1 for s in self.log.producers.all()), 0)

    @invariant()
    def offsets_are_the_models(self) -> None:
        if self.log is None:
            return
        log: Log = self.log
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.durability.synced_offset >= self.durable
        assert log.durability.recovery_point <= log.durability.synced_offset

    def teardown(self) -> None:
        if self.log is None:
            return
        expected = [
            (base + n, value)
            for base, values, _ in self.batches
            for n, value in enumerate(values)
            if base + n >= self.start
        ]
        assert read_all(self.log, bytes_max=2000) == expected


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
