"""Hypothesis strategies for records and batches, and the vectors file."""

from pathlib import Path

from hypothesis import strategies as st
from semel_protocol.records import Record

VECTORS = Path(__file__).parent.parent / "data" / "record-batch-vectors.txt"

timestamps = st.integers(min_value=0, max_value=4_102_444_800_000)
blobs = st.one_of(st.none(), st.binary(max_size=200), st.integers(8000, 40_000).map(lambda n: b"v" * n))
headers = st.lists(st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=20))), max_size=4).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 20) -> list[Record]:
    """Records with offsets from 0, close or arbitrary timestamps, with or without keys, values and headers."""
    start = draw(timestamps)
    ticks = st.one_of(st.integers(0, 100).map(lambda n: start + n), timestamps)
    rows = draw(st.lists(st.tuples(ticks, blobs, blobs, headers), min_size=1, max_size=max_size))
    return [Record(offset, *row) for offset, row in enumerate(rows)]


def vectors(name: str) -> list[list[str]]:
    """The rest of every line of the vectors file that starts with `name`, split at spaces."""
    lines = VECTORS.read_text().splitlines()
    return [line.removeprefix(name).split() for line in lines if line.startswith(name)]
