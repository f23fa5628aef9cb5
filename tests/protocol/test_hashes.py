"""The hashes equal those of Java, by vectors of its implementation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from semel_protocol.hashes import coordinator_partition, java_hash_code, murmur2, partition_for_key

ROWS = [
    ("", 275646681, 9, 0, 0),
    ("21", -973932308, 0, 1599, 49),
    ("foobar", -790332482, 6, -1268878963, 13),
    ("a-little-bit-long-string", -985981536, 8, -865776169, 19),
    ("a-little-bit-longer-string", -1486304829, 11, -1512594870, 20),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 5, -305440039, 39),
    ("abc", 479470107, 3, 96354, 4),
    ("é", 186971271, 3, 233, 33),
]


@pytest.mark.parametrize(("text", "hashed", "partition", "code", "coordinator"), ROWS)
def test_vectors(text: str, hashed: int, partition: int, code: int, coordinator: int) -> None:
    data = text.encode()
    assert murmur2(data) == hashed & 0xFFFFFFFF
    assert partition_for_key(data, 12) == partition
    assert java_hash_code(text) == code
    assert coordinator_partition(text, 50) == coordinator


@given(st.binary(max_size=300))
def test_murmur2_agrees_with_kafka_python(data: bytes) -> None:
    assert murmur2(data) == kafka_python_murmur2(data) & 0xFFFFFFFF


def test_hash_code_counts_utf16_units() -> None:
    assert java_hash_code("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_the_smallest_hash_code_has_no_absolute_value() -> None:
    assert java_hash_code("polygenelubricants") == -(2**31)
    assert coordinator_partition("polygenelubricants", 50) == 0
