"""Frames out of a stream of bytes, however it is cut into pieces, and what that costs in memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel._net.frame_buffer import SCRATCH_BYTES, FrameBuffer
from semel_protocol.errors import ProtocolError

SIZES = st.sampled_from([0, 1, 3, 4, 60, 1000, SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES, SCRATCH_BYTES * 3])


def framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes, cuts: Iterable[int]) -> list[bytes | bytearray]:
    """What comes out when `data` arrives in pieces of at most these sizes, and what is left at once."""
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
@given(st.lists(SIZES, max_size=6), st.lists(st.integers(1, SCRATCH_BYTES * 2), min_size=1, max_size=20))
def test_any_cut_of_the_stream_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    assert feed(FrameBuffer(1 << 30), framed(frames), cuts) == frames


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


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_a_size_that_no_frame_can_have_is_refused_before_memory_is_taken(size: int) -> None:
    buffer = FrameBuffer(100)
    with pytest.raises(ProtocolError, match="a frame has 0 to 100"):
        feed(buffer, size.to_bytes(4, "big", signed=True), [4])
