"""FrameBuffer: frames do not depend on the chunks received, and a size prefix alone takes no memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.net.frame_buffer import FIRST_GROWTH_BYTES, FrameBuffer
from semel_protocol.errors import ProtocolError

SCRATCH = 64
PRODUCE, OTHER = b"\x00\x00", b"\x00\x03"


def make(scratch: int = SCRATCH) -> FrameBuffer:
    return FrameBuffer(memoryview(bytearray(scratch)), produce_bytes_max=1000, other_bytes_max=100)


def pour(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Write `data` as a socket would: repeatedly as many bytes as the buffer has room for."""
    frames: list[bytes] = []
    while data:
        buffer.grow()
        room = buffer.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += map(bytes, buffer.received(count))
        data = data[count:]
    return frames


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=6, max_size=300), max_size=8), st.data())
def test_frames_do_not_depend_on_the_chunks_received(bodies: list[bytes], data: st.DataObject) -> None:
    frames = [PRODUCE + body for body in bodies]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    buffer, got, at = make(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, 150))
        got += pour(buffer, stream[at : at + step])
        at += step
    assert got == frames
    assert not buffer.is_partial
    assert buffer.held_bytes == 0


def test_connections_that_share_scratch_do_not_see_each_others_bytes() -> None:
    scratch = memoryview(bytearray(SCRATCH))
    one, two = (FrameBuffer(scratch, produce_bytes_max=1000, other_bytes_max=100) for _ in range(2))
    frame = (20).to_bytes(4, "big") + PRODUCE + b"x" * 18
    for cut in range(1, len(frame)):
        assert pour(one, frame[:cut]) == []
        assert pour(two, frame.replace(b"x", b"y")) == [PRODUCE + b"y" * 18]
        assert pour(one, frame[cut:]) == [PRODUCE + b"x" * 18]


def test_the_memory_of_a_large_frame_grows_as_its_bytes_arrive() -> None:
    size = 10 << 20
    buffer = FrameBuffer(memoryview(bytearray(SCRATCH)), produce_bytes_max=size, other_bytes_max=100)
    assert pour(buffer, size.to_bytes(4, "big") + PRODUCE + b"a" * 10) == []
    assert buffer.frame_bytes == size
    assert buffer.held_bytes == 12
    arrived, piece = 12, bytes(range(256)) * 512
    frames: list[bytes] = []
    while not frames:
        frames = pour(buffer, piece[: size - arrived])
        arrived += len(piece)
        assert buffer.held_bytes <= max(FIRST_GROWTH_BYTES, 2 * arrived)
    assert frames == [PRODUCE + b"a" * 10 + (piece * 80)[: size - 12]]
    assert buffer.held_bytes == 0


@pytest.mark.proves("invalid-frame")
@pytest.mark.parametrize(
    ("size", "api", "fits"),
    [
        (-1, PRODUCE, False),
        (7, PRODUCE, False),
        (8, PRODUCE, True),
        (1000, PRODUCE, True),
        (1001, PRODUCE, False),
        (100, OTHER, True),
        (101, OTHER, False),
        (2**31 - 1, OTHER, False),
    ],
)
def test_invalid_frame_sizes_are_refused(size: int, api: bytes, fits: bool) -> None:
    head = size.to_bytes(4, "big", signed=True) + api
    if fits:
        assert pour(make(), head) == []
    else:
        with pytest.raises(ProtocolError):
            pour(make(), head)
