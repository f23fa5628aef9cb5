"""The framer: whole frames from any pieces of a stream, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_protocol.errors import ProtocolError
from semel_protocol.framing import SCRATCH_BYTES, FrameBuffer

SIZES = st.sampled_from([0, 1, 3, 4, 60, 1000, SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES * 3])


def framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes, cuts: Iterable[int]) -> list[bytes | bytearray]:
    """The resulting frames when `data` arrives in pieces of at most these sizes, then the rest at once."""
    frames: list[bytes | bytearray] = []
    at, pieces = 0, iter(cuts)
    while at < len(data):
        piece = next(pieces, len(data))
        room = buffer.buffer()
        count = min(piece, len(room), len(data) - at)
        assert count > 0, "there is always room for the next bytes"
        room[:count] = data[at : at + count]
        at += count
        frames += buffer.received(count)
    return frames


@settings(deadline=None)
@given(
    st.lists(SIZES, max_size=6),
    st.lists(st.integers(1, SCRATCH_BYTES * 2), min_size=1, max_size=20),
    st.sampled_from([None, 1, SCRATCH_BYTES]),
)
def test_any_cut_of_the_stream_gives_the_same_frames(
    sizes: list[int], cuts: list[int], unfilled_bytes_max: int | None
) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    assert feed(FrameBuffer(1 << 30, unfilled_bytes_max), framed(frames), cuts) == frames


def test_frames_are_put_together_from_single_bytes() -> None:
    frames = [b"", b"a", b"bc", b"", b"def"]
    assert feed(FrameBuffer(10), framed(frames), [1] * 100) == frames


def test_a_frame_keeps_its_bytes_when_the_next_ones_arrive() -> None:
    buffer = FrameBuffer(1 << 20)
    (kept,) = feed(buffer, framed([b"first"]), [100])
    feed(buffer, framed([b"later"]), [100])
    assert kept == b"first"


def test_the_rest_of_a_large_frame_has_room_at_once_and_no_more_than_it_needs() -> None:
    buffer = FrameBuffer(1 << 30)
    size = 10 * SCRATCH_BYTES
    begin = framed([bytes(size)])[:SCRATCH_BYTES]
    assert feed(buffer, begin, [SCRATCH_BYTES]) == []
    assert len(buffer.buffer()) == size - (SCRATCH_BYTES - 4)


def test_with_a_limit_an_announced_size_takes_no_memory_before_the_bytes_arrive() -> None:
    limit, size = 1000, 100_000
    buffer = FrameBuffer(1 << 30, unfilled_bytes_max=limit)
    arrived = 1
    assert feed(buffer, size.to_bytes(4, "big") + b"x", [5]) == []
    while arrived < size:
        room = len(buffer.buffer())
        assert room <= max(limit, arrived), "memory at most doubles"
        frames = buffer.received(room)
        arrived += room
    assert [len(frame) for frame in frames] == [size]


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_a_size_that_no_frame_can_have_is_refused_before_memory_is_taken(size: int) -> None:
    buffer = FrameBuffer(100)
    with pytest.raises(ProtocolError, match="a frame has 0 to 100"):
        feed(buffer, size.to_bytes(4, "big", signed=True), [4])
