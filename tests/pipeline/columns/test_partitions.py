"""The keys of a column get the partitions of Java's default partitioner."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark_semel.columns.partitions import for_keys, murmur2_column
from semel_protocol.hashes import murmur2, partition_for_key


@given(st.lists(st.none() | st.binary(max_size=30) | st.binary(min_size=250, max_size=270)), st.integers(0, 3))
def test_each_key_of_a_column_has_its_murmur2_hash(keys: list[bytes | None], skipped: int) -> None:
    column = pa.array(keys, pa.binary())[skipped:]
    for key, found in zip(keys[skipped:], murmur2_column(column).tolist(), strict=True):
        assert key is None or found == murmur2(key)


@given(st.lists(st.binary(max_size=30)), st.integers(1, 100))
def test_the_partition_equals_that_of_the_client(keys: list[bytes], partition_count: int) -> None:
    found = for_keys(pa.array(keys, pa.binary()), partition_count).tolist()
    assert found == [partition_for_key(key, partition_count) for key in keys]
