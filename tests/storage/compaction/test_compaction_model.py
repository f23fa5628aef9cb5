"""Compaction compared with a model: a list of all appended records."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from semel_protocol.records import Record
from semel_storage.compaction.compaction import compact, dirtiness
from semel_storage.segments.log_config import LogConfig
from support.logs import DataDirectory, no_pause, records_of

CONFIG = LogConfig(cleanup_policy=("compact",), delete_retention_ms=500, segment_bytes=700, index_interval_bytes=100)
KEYS = [b"a", b"b", b"c", b"d", b"long key " * 5]

appends = st.tuples(
    st.just("append"),
    st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=6),
    st.sampled_from([0, 0, 0, 1, 4]),
    st.sampled_from([None, None, 11, 12]),
)
others = st.tuples(
    st.sampled_from(["roll", "compact", "compact", "wait", "restart", "kill", "crash"]), st.integers(2, 12)
)


@dataclass
class Model:
    """All records by offset, each producer's next sequence and last batch, and the end of the last round."""

    data: DataDirectory
    records: dict[int, Record] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last_batches: dict[int, tuple[int, list[tuple[bytes, bytes | None]], int]] = field(default_factory=dict)
    cleaned: int = 0
    appended: int = 0

    def append(self, keys: list[tuple[bytes, bool]], codec: int, producer_id: int | None) -> None:
        pairs = [(key, None if gone else b"%d" % (self.appended + n)) for n, (key, gone) in enumerate(keys)]
        self.appended += len(pairs)
        producer = (-1, -1, -1)
        if producer_id is not None:
            sequence = self.sequences.get(producer_id, 0)
            producer = (producer_id, 0, sequence)
            self.sequences[producer_id] = sequence + len(pairs)
        base_offset = self.data.append(pairs, codec=codec, producer=producer).base_offset
        if producer_id is not None:
            self.last_batches[producer_id] = (base_offset, pairs, codec)
        for n, (key, value) in enumerate(pairs):
            self.records[base_offset + n] = Record(base_offset + n, self.data.now_ms + n, key, value)

    async def compact(self, keys_max: int) -> None:
        log = self.data.log
        await log.durability.checkpoint()
        dirty = dirtiness(log, self.cleaned, last_stable_offset=log.end_offset, now_ms=self.data.now_ms)
        if not dirty.dirty_bytes:
            return
        done = await compact(
            log, dirty, now_ms=self.data.now_ms, keys_max=keys_max, held_by_all=log.end_offset, pause=no_pause
        )
        assert done.end_offset > self.cleaned
        self.cleaned = done.end_offset

    def check(self) -> None:
        """Check the invariants, which must always hold."""
        log = self.data.log
        found = records_of(log)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert all(record == self.records[record.offset] for record in found), "a record changed or moved"
        last: dict[bytes | None, Record] = {}
        last_cleaned: dict[bytes | None, Record] = {}
        for offset, record in self.records.items():
            last[record.key] = record
            if offset < self.cleaned:
                last_cleaned[record.key] = record
        for key, record in last.items():
            older = [r for r in found if r.key == key and r.offset < record.offset and r.value is not None]
            if record.value is not None:
                assert record in found, f"the last value of {key!r} is lost"
            elif record not in found:
                assert not older, f"the tombstone of {key!r} is gone, an older value is not"
        for record in found:
            if record.offset < self.cleaned:
                assert record is last_cleaned[record.key] or record == last_cleaned[record.key], (
                    "outdated, yet it stays"
                )
        assert log.end_offset == len(self.records)

    def check_reads(self) -> None:
        """Check that every offset can be read."""
        found = records_of(self.data.log)
        for offset in range(0, self.data.log.end_offset, 5):
            assert records_of(self.data.log, offset) == [r for r in found if r.offset >= offset]

    def check_retries(self) -> None:
        """Check that a retry of a producer's last batch is recognised."""
        for producer_id, (base_offset, pairs, codec) in self.last_batches.items():
            sequence = self.sequences[producer_id] - len(pairs)
            result = self.data.append(pairs, codec=codec, producer=(producer_id, 0, sequence))
            assert (result.duplicate, result.base_offset) == (True, base_offset)


async def run(steps: list[tuple[object, ...]]) -> None:
    model = Model(DataDirectory(CONFIG))
    for step in steps:
        match step:
            case ("append", keys, codec, producer_id):
                model.append(keys, codec, producer_id)  # type: ignore[arg-type]
            case ("roll", _):
                model.data.log.roll()
            case ("wait", much):
                model.data.now_ms += 100 * much  # type: ignore[operator]
            case ("compact", keys_max):
                await model.compact(keys_max)  # type: ignore[arg-type]
            case ("restart", _):
                model.data.restart()
            case ("kill", _):
                model.data.kill_and_open()
            case ("crash", _):
                await model.data.log.durability.sync()
                model.data.crash_and_open()
        model.check()
    model.check_reads()
    model.check_retries()


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(appends, appends, others), min_size=5, max_size=50))
def test_compaction_keeps_the_last_value_of_each_key_and_every_offset(steps: list[tuple[object, ...]]) -> None:
    asyncio.run(run(steps))
