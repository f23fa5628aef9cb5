"""Values that are encoded at once are the records that are encoded one by one."""

from __future__ import annotations

import pytest
from semel.cli.produce.value_block import (
    COUNT_MAX,
    RECORD_OVERHEAD_BYTES_MAX,
    encoded_block,
    encoded_headers,
    encoded_keyed_block,
)
from semel_protocol.records import encode_record


def one_by_one(values: list[bytes], headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    return b"".join(encode_record(0, row, None, value, headers) for row, value in enumerate(values))


@pytest.mark.parametrize(
    "headers", [(), (("a", b"1"), ("ö", None), ("", b""), ("\udcff", b""))], ids=["no headers", "headers"]
)
@pytest.mark.parametrize(
    "values",
    [
        [b""],
        [b"x"],
        [b"", b"a" * 63, b"a" * 64, b"a" * 8191, b"a" * 8192, b"a" * 2_000_000],
        [b"%d" % row for row in range(64)],
        [b"%d" % row for row in range(65)],
        [b"v" * (row % 200) for row in range(8193)],
        [b""] * COUNT_MAX,
    ],
    ids=lambda values: f"{len(values)} values",
)
def test_a_block_has_the_bytes_of_its_records(
    values: list[bytes], headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    assert encoded_block(values, encoded_headers(headers)) == one_by_one(values, headers)
    keys = [b"k" * (row % 300) for row in range(len(values))]
    assert encoded_keyed_block(keys, values, encoded_headers(headers)) == b"".join(
        encode_record(0, row, key, value, headers) for row, (key, value) in enumerate(zip(keys, values, strict=True))
    )


def test_a_record_is_no_larger_than_the_bound() -> None:
    values = [b"x" * 100_000_000] * 1
    size = len(encoded_block(values, encoded_headers(())))
    assert size <= len(values[0]) + RECORD_OVERHEAD_BYTES_MAX + len(encoded_headers(()))
