"""Frames out of any cutting of the bytes, and the budget that large ones share."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.byte_budget import ByteBudget
from semel_broker.frame_buffer import FrameBuffer
from semel_protocol.errors import ProtocolError

SCRATCH = 64
PRODUCE, OTHER = b"\x00\x00", b"\x00\x03"


def make(scratch: int = SCRATCH) -> FrameBuffer:
    return FrameBuffer(memoryview(bytearray(scratch)), produce_bytes_max=1000, other_bytes_max=100)


def pour(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Put `data` in as a socket would: as much as there is room for, again and again."""
    frames: list[bytes] = []
    while data:
        room = buffer.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += map(bytes, buffer.received(count))
        data = data[count:]
    return frames


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=6, max_size=300), max_size=8), st.data())
def test_any_cutting_gives_the_same_frames(bodies: list[bytes], data: st.DataObject) -> None:
    frames = [PRODUCE + body for body in bodies]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    buffer, got, at = make(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, 150))
        got += pour(buffer, stream[at : at + step])
        at += step
    assert got == frames
    assert not buffer.is_partial
    assert buffer.partial_bytes == 0


def test_connections_that_share_scratch_do_not_see_each_others_bytes() -> None:
    scratch = memoryview(bytearray(SCRATCH))
    one, two = (FrameBuffer(scratch, produce_bytes_max=1000, other_bytes_max=100) for _ in range(2))
    frame = (20).to_bytes(4, "big") + PRODUCE + b"x" * 18
    for cut in range(1, len(frame)):
        assert pour(one, frame[:cut]) == []
        assert pour(two, frame.replace(b"x", b"y")) == [PRODUCE + b"y" * 18]
        assert pour(one, frame[cut:]) == [PRODUCE + b"x" * 18]


def test_a_large_frame_is_received_into_its_own_memory() -> None:
    buffer = make()
    pour(buffer, (900).to_bytes(4, "big") + PRODUCE + b"a" * 10)
    assert buffer.partial_bytes == 900
    assert len(buffer.buffer()) == 900 - 12


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
def test_sizes_that_no_frame_can_have(size: int, api: bytes, fits: bool) -> None:
    head = size.to_bytes(4, "big", signed=True) + api
    if fits:
        assert pour(make(), head) == []
    else:
        with pytest.raises(ProtocolError):
            pour(make(), head)


def test_the_budget_serves_its_line_in_order_and_never_exceeds_what_it_has() -> None:
    budget = ByteBudget(100)
    served: list[str] = []
    assert budget.ask("a", 60, lambda: served.append("a"))
    assert not budget.ask("b", 50, lambda: served.append("b"))
    assert not budget.ask("c", 10, lambda: served.append("c"))  # would fit, but b came first
    assert not budget.ask("d", 10, lambda: served.append("d"))
    assert budget.withdraw("d")
    budget.give_back(60)
    assert served == ["b", "c"]
    assert budget.taken == 60
    assert not budget.withdraw("b")


def test_what_is_larger_than_the_budget_is_served_alone() -> None:
    budget = ByteBudget(100)
    served: list[str] = []
    budget.take(1)
    assert not budget.ask("large", 5000, lambda: served.append("large"))
    budget.give_back(1)
    assert served == ["large"]
    assert not budget.ask("next", 1, lambda: served.append("next"))
    budget.give_back(5000)
    assert served == ["large", "next"]
