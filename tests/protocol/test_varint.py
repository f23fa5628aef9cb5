"""Zigzag varints: vectors and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.record_strategies import vectors
from semel_protocol.batch import CorruptBatch
from semel_protocol.varint import VARLONG_BYTES_MAX, read_varint, varint


@pytest.mark.parametrize(("number", "encoded"), vectors("zigzag "))
def test_vectors(number: str, encoded: str) -> None:
    assert varint(int(number)).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (int(number), len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_in_the_middle_of_other_bytes(number: int, before: bytes, after: bytes) -> None:
    encoded = varint(number)
    at = len(before)
    assert len(encoded) <= VARLONG_BYTES_MAX
    assert read_varint(before + encoded + after, at, VARLONG_BYTES_MAX) == (number, at + len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_32_bits_take_at_most_five_bytes(number: int) -> None:
    assert read_varint(varint(number), 0)[0] == number


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_cut_is_corrupt(number: int) -> None:
    encoded = varint(number)
    for cut in range(len(encoded)):
        with pytest.raises(CorruptBatch):
            read_varint(encoded[:cut], 0, VARLONG_BYTES_MAX)


def test_a_varint_that_never_ends_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="5 bytes"):
        read_varint(b"\xff" * 100, 0)
