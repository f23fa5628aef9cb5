"""Rows are encoded as batches: each row once, in its partition, in order."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_semel.sink import batches as sink_batches
from pyspark_semel.sink.batches import Encoder, OutBatch, chunks
from pyspark_semel.sink.schema import SchemaError, SinkSchema
from semel_protocol.hashes import partition_for_key
from semel_protocol.records import BatchBuilder, decode_batch

COUNTS = {"a": 1, "b": 3, "c": 40_000}
SCHEMA = SinkSchema(value=0, key=1, topic=2, partition=3, headers=4)
ARROW = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)

row = st.fixed_dictionaries(
    {
        "key": st.none() | st.text(max_size=4),
        "topic": st.sampled_from(sorted(COUNTS)),
        "partition": st.none() | st.just(0),
        "headers": st.none() | st.just([{"key": "h", "value": None}]),
    }
)


def table(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**each, "value": b"%d" % at} for at, each in enumerate(rows)], ARROW)


def encoded(
    batch: pa.RecordBatch, schema: SinkSchema = SCHEMA, topic: str | None = None, size: int = 500
) -> list[OutBatch]:
    return Encoder(schema, topic, size, 5).encode(batch, lambda topics: {each: COUNTS[each] for each in topics})


def values(batch: OutBatch) -> list[tuple[bytes | None, bytes | None, int]]:
    builder = BatchBuilder()
    builder.fill(batch.records, batch.count, 0, 0)
    return [(record.value, record.key, len(record.headers)) for record in decode_batch(builder.build(1, 0, 0))]


@given(st.lists(row, min_size=1, max_size=60))
def test_each_row_is_in_its_partition_in_order(rows: list[dict[str, Any]]) -> None:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for batch in encoded(table(rows)):
        for value, key, headers in values(batch):
            at = int(value or b"")
            given_key = rows[at]["key"]
            assert key == (None if given_key is None else given_key.encode())
            assert headers == len(rows[at]["headers"] or ())
            assert batch.topic == rows[at]["topic"]
            if rows[at]["partition"] is not None:
                assert batch.partition == rows[at]["partition"]
            elif key is not None:
                assert batch.partition == partition_for_key(key, COUNTS[batch.topic])
            assert 0 <= batch.partition < COUNTS[batch.topic]
            found[batch.topic, batch.partition].append(at)
    assert sorted(at for each in found.values() for at in each) == list(range(len(rows)))
    assert all(each == sorted(each) for each in found.values())


def test_rows_without_a_partition_fill_one_batch_after_another() -> None:
    rows = table([{"topic": "b"}] * 300)
    batches = encoded(rows, SinkSchema(value=0), "b")
    assert sorted({batch.partition for batch in batches}) == [0, 1, 2]
    assert len(batches) <= 300 * 35 // 500 + 3, "batches are full, but the last one of each partition"
    encoder = Encoder(SinkSchema(value=0), "b", 10**6, 5)
    ask = lambda topics: {"b": 3}  # noqa: E731
    assert [encoder.encode(rows, ask)[0].partition for _ in range(4)] == [2, 0, 1, 2]


def test_the_topic_option_overrides_the_column() -> None:
    assert {batch.topic for batch in encoded(table([{"topic": "b"}, {"topic": None}]), topic="a")} == {"a"}


@pytest.mark.parametrize(
    ("given_row", "words"),
    [
        ({"topic": None}, "a row has no topic"),
        ({"topic": "b", "partition": 3}, "a row has partition 3, and topic 'b' has 0 to 2"),
        ({"topic": "b", "partition": -1}, "a row has partition -1: write null"),
        ({"topic": "b", "headers": [{"key": None, "value": b"x"}]}, "column 'headers': a header has no key"),
    ],
)
def test_an_invalid_row_is_an_error_with_the_reason(given_row: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        encoded(table([{"topic": "b"}, given_row]))


def test_chunks_have_all_rows_and_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_batches, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(sink_batches, "JOINED_BYTES_MAX", 20_000)
    sizes = [3, 0, 5, 700, 1, 3_000, 2]
    given_batches = [pa.record_batch({"value": pa.array([b"0123456789"] * size, pa.binary())}) for size in sizes]
    found = list(chunks(iter(given_batches)))
    assert sum(each.num_rows for each in found) == sum(sizes)
    assert [each.num_rows for each in found[:1]] == [708]
    assert max(each.num_rows for each in found) < 800
