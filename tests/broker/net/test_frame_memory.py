"""FrameMemory: small frames do not wait behind large ones, and stalled connections lose their memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.scheduling.frame_memory import FrameMemory, Holding

SMALL = 100


class FramePeers:
    """Connections with one memory, and their later grants and evictions."""

    def __init__(self, bytes_max: int = 1000, always_bytes: int = 0) -> None:
        self.memory = FrameMemory(bytes_max, SMALL, always_bytes)
        self.granted: list[str] = []
        self.evicted: list[str] = []
        self.holdings: dict[str, Holding] = {}

    def open(self, name: str, address: str | None = None) -> Holding:
        def evict() -> None:
            self.evicted.append(name)
            self.memory.close(self.holdings[name])

        self.holdings[name] = self.memory.open(address or name, evict)
        return self.holdings[name]

    def grow(self, name: str, count: int, frame_bytes: int) -> bool:
        holding = self.holdings.get(name) or self.open(name)
        return self.memory.grow(holding, count, frame_bytes, lambda: self.granted.append(name))

    def evict_stalled(self) -> None:
        for holding in self.memory.stalled(10):
            holding.evict()


def test_large_frames_get_half_of_the_memory_and_one_is_favoured() -> None:
    peers = FramePeers()
    assert peers.grow("a", 400, 800)
    assert peers.grow("b", 100, 800)
    assert peers.grow("c", 400, 800)  # favoured: it is granted
    assert not peers.grow("a", 400, 800)
    assert peers.grow("c", 400, 800)
    peers.memory.whole(peers.holdings["c"])
    assert peers.granted == ["a"]  # the next favoured frame
    assert not peers.grow("b", 100, 800)
    peers.memory.give_back(peers.holdings["c"], 800)
    peers.memory.whole(peers.holdings["a"])
    peers.memory.give_back(peers.holdings["a"], 800)
    assert peers.granted == ["a", "b"]
    assert peers.memory.taken == 200


def test_a_small_frame_does_not_wait_behind_large_ones() -> None:
    peers = FramePeers()
    assert peers.grow("large", 500, 900)
    assert peers.grow("favoured", 100, 900)
    assert not peers.grow("waits", 100, 900)
    assert peers.grow("small", 100, SMALL)


def test_the_smallest_frames_do_not_wait_even_if_they_come_in_parts() -> None:
    peers = FramePeers(always_bytes=16)
    for n in range(10):
        assert peers.grow(f"stops {n}", 100, SMALL)
    assert peers.grow("favoured", 10, 900)
    assert not peers.grow("small", 90, SMALL)
    assert peers.grow("smallest", 6, 16)
    assert peers.grow("smallest", 10, 16)
    assert not peers.grow("smallest", 1, 16), "a connection holds no more than that"
    assert not peers.grow("larger", 16, 17)


def test_connections_of_one_address_leave_a_quarter_to_others() -> None:
    peers = FramePeers()
    for n in range(10):
        peers.open(f"crowd {n}", "crowd")
        peers.grow(f"crowd {n}", 100, SMALL)
    assert peers.memory.taken == 800  # three quarters, and a favoured one
    assert peers.granted == []
    assert peers.grow("other", 100, SMALL)


def test_a_connection_that_holds_nothing_may_always_receive_a_frame() -> None:
    peers = FramePeers()
    peers.memory.take(peers.open("full"), 2000)
    assert peers.memory.is_exhausted
    assert peers.memory.may_read_on(peers.open("new"), lambda: None)
    assert not peers.memory.may_read_on(peers.holdings["full"], lambda: peers.granted.append("full"))
    peers.memory.give_back(peers.holdings["full"], 1500)
    assert peers.granted == ["full"]


def test_stalled_connections_with_most_memory_are_closed_first() -> None:
    peers = FramePeers()
    peers.memory.take(peers.open("much", "x"), 300)
    peers.memory.take(peers.open("moves", "x"), 300)
    peers.memory.take(peers.open("little", "y"), 50)
    peers.memory.take(peers.open("idle, holds nothing"), 0)
    assert peers.grow("favoured", 340, 900)
    peers.evict_stalled()
    assert peers.evicted == []  # no connection waits
    assert not peers.grow("waits", 90, SMALL)
    peers.memory.moved(peers.holdings["moves"], 10)
    peers.memory.moved(peers.holdings["favoured"], 10)
    peers.evict_stalled()
    assert peers.evicted == ["much"]
    assert peers.granted == ["waits"]


def test_a_favoured_frame_that_stalls_is_closed_and_another_one_favoured() -> None:
    peers = FramePeers()
    peers.memory.take(peers.open("busy"), 700)
    assert peers.grow("favoured", 200, 900)
    assert not peers.grow("next", 200, 900)
    peers.evict_stalled()  # its first check: its arrival counts as progress
    for _ in range(2):
        peers.memory.moved(peers.holdings["busy"], 10)
        peers.evict_stalled()
    assert peers.evicted == ["favoured"]
    assert peers.granted == ["next"]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_all_frames_are_served_and_at_most_one_exceeds_the_bound(data: st.DataObject) -> None:
    """Connections receive frames of any size in pieces, in any order, and are then answered."""
    sizes = data.draw(st.lists(st.integers(1, 900), min_size=1, max_size=8))
    peers = FramePeers()
    for n in range(len(sizes)):
        peers.open(str(n))
    left = {str(n): size for n, size in enumerate(sizes)}
    waiting: dict[str, int] = {}
    rounds = 0
    while left:
        rounds += 1
        assert rounds < 2_000, "no progress"
        while peers.granted:
            name = peers.granted.pop()
            left[name] -= waiting.pop(name)
        free = [name for name in left if name not in waiting]
        assert free, (left, waiting)
        name = data.draw(st.sampled_from(free))
        size, holding = sizes[int(name)], peers.holdings[name]
        if left[name]:
            count = min(left[name], data.draw(st.integers(1, 300)))
            if peers.grow(name, count, size):
                left[name] -= count
            else:
                waiting[name] = count
        else:
            del left[name]
            peers.memory.whole(holding)
            peers.memory.give_back(holding, size)
        assert peers.memory.taken <= 1000 + 900
    assert peers.memory.taken == 0
    assert not peers.memory.has_waiting


def test_a_closed_connection_releases_its_memory() -> None:
    peers = FramePeers()
    peers.memory.take(peers.open("a"), 1000)
    assert peers.grow("b", 10, SMALL)  # favoured
    assert not peers.grow("c", 10, SMALL)
    peers.memory.close(peers.holdings["a"])
    assert peers.granted == ["c"]
    with pytest.raises(AssertionError):
        peers.memory.give_back(peers.holdings["b"], 11)


@pytest.mark.proves("innocent-client-closed")
def test_a_small_queued_request_does_not_close_its_connection() -> None:
    peers = FramePeers()
    peers.memory.take(peers.open("small request"), 5)
    peers.memory.take(peers.open("much"), 995)
    assert peers.grow("favoured", 90, SMALL)
    assert not peers.grow("waits", 2000, SMALL)
    peers.evict_stalled()
    peers.evict_stalled()
    assert peers.evicted == ["much", "favoured"]


def test_a_connection_that_just_began_to_send_is_not_closed() -> None:
    peers = FramePeers()
    for name in ("much", "sends again"):
        peers.memory.take(peers.open(name), 495)
    assert peers.grow("favoured", 90, SMALL)
    assert not peers.grow("waits", 2000, SMALL)
    peers.evict_stalled()
    peers.memory.give_back(peers.holdings["sends again"], 495)
    peers.memory.take(peers.holdings["sends again"], 300)
    peers.memory.take(peers.open("new"), 300)
    for name in ("sends again", "new"):
        peers.holdings[name].moved_bytes = 5
    peers.evict_stalled()
    assert peers.evicted == ["much", "favoured"]


@pytest.mark.proves("innocent-client-closed")
def test_a_connection_holding_nothing_may_send_with_memory_exhausted() -> None:
    peers = FramePeers()
    peers.memory.take(peers.open("much"), 1000)
    small = peers.open("small request")
    peers.memory.take(small, 5)
    assert not peers.memory.may_read_on(small, lambda: peers.granted.append("small request"))
    peers.memory.give_back(small, 5)
    assert peers.granted == ["small request"]
    assert not peers.memory.has_waiting
