"""AnswerMemory alone: the counted bytes, the closed connections, and Fetches that the same records wake."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from broker.crashable_broker import CrashableBroker, write
from broker.harness import fetch_request
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.context import Broker, RequestContext
from semel_broker.counters.counters import Counters
from semel_broker.handlers import k01_fetch
from semel_broker.scheduling.answer_memory import AnswerHolding, AnswerMemory

MIB = 1 << 20
STALLED_S = 0.5
MOVED_BYTES_MIN = 1000


class AnswerPeers:
    """Peers with unacknowledged bytes that a test sets, and a clock."""

    def __init__(self, bytes_max: int = 100_000) -> None:
        self.now = 0.0
        self.exhausted = 0
        self.evicted: list[str] = []
        self.untaken: dict[str, int] = {}
        self.memory = AnswerMemory(bytes_max, 16, 100, lambda: self.now, self._note_exhausted)

    def _note_exhausted(self) -> None:
        self.exhausted += 1

    def open(self, name: str, held: int = 0) -> AnswerHolding:
        self.untaken[name] = held
        holding = self.memory.open(lambda: self.untaken[name], lambda: self.evicted.append(name))
        if held:
            holding.take(held)
        return holding

    def stalled(self) -> list[str]:
        for holding in self.memory.stalled(MOVED_BYTES_MIN, STALLED_S):
            holding.evict()
        evicted, self.evicted = self.evicted, []
        return evicted


def test_what_is_read_counts_before_the_answer_is_made() -> None:
    peers = AnswerPeers()
    one = peers.open("one")
    one.reserve(60_000)
    one.reserve(30_000)
    assert (peers.memory.taken, one.answer_bytes_max) == (90_000, 10_000 // 16)
    one.unreserve()
    assert peers.memory.taken == 0


def test_a_connection_that_is_gone_holds_nothing_whatever_its_requests_still_do() -> None:
    peers = AnswerPeers()
    one = peers.open("one", 50_000)
    one.reserve(10_000)
    peers.memory.close(one)
    assert peers.memory.taken == 0
    one.unreserve()
    one.reserve(5_000)
    one.give_back(50_000)
    assert peers.memory.taken == 0


def test_those_in_line_are_called_in_their_order_while_there_is_room() -> None:
    peers = AnswerPeers()
    one, other = peers.open("one", 110_000), peers.open("other")
    called: list[str] = []
    for name in "abc":
        other.wait(lambda name=name: (called.append(name), other.take(60_000)))  # type: ignore[misc]
    assert (peers.exhausted, other.has_room) == (3, False)
    one.give_back(110_000)
    assert called == ["a", "b"]
    assert peers.memory.waiting == 1


def test_of_those_that_do_not_move_the_ones_that_hold_most_are_closed_until_a_quarter_is_free() -> None:
    peers = AnswerPeers()
    for name, held in (("small", 10_000), ("large", 60_000), ("middle", 40_000)):
        peers.open(name, held)
    peers.now = 0.4
    assert peers.stalled() == []
    peers.now = 0.5
    assert peers.stalled() == ["large"]


def test_a_peer_that_takes_something_now_and_again_is_not_closed() -> None:
    peers = AnswerPeers()
    peers.open("slow", 110_000)
    for _ in range(20):
        peers.now += STALLED_S / 4
        peers.untaken["slow"] -= MOVED_BYTES_MIN // 2
        assert peers.stalled() == []
    peers.now += STALLED_S
    assert peers.stalled() == ["slow"]


def test_a_peer_that_has_taken_all_before_has_its_time_again() -> None:
    peers = AnswerPeers()
    one = peers.open("one", 110_000)
    peers.now = 10.0
    one.give_back(110_000)
    one.take(110_000)
    assert peers.stalled() == []
    peers.now = 10.5
    assert peers.stalled() == ["one"]


async def test_fetches_that_the_same_records_wake_stay_within_the_bound() -> None:
    machine = CrashableBroker()
    topics = await machine.start()
    await topics.create(NewTopic(name="t"))
    broker = cast("Broker", SimpleNamespace(topics=topics, config=machine.config, log=machine.log, counters=Counters()))
    peers = AnswerPeers(bytes_max=8 * MIB)
    most, answered = 0, 0

    async def ask() -> None:
        nonlocal most, answered
        holding = peers.open(f"{len(peers.untaken)}")
        context = RequestContext(broker, 11, "", "", "", answers=holding)
        response = await k01_fetch.handle(fetch_request("t", 0, max_wait_ms=60_000), context)
        assert len(response.responses[0].partitions[0].records) > 900_000
        most, answered = max(most, peers.memory.taken), answered + 1
        await asyncio.sleep(1)  # until its peer has read it
        holding.unreserve()

    asked = [asyncio.create_task(ask()) for _ in range(50)]
    await asyncio.sleep(0)
    await write(topics, "t", 0, bytes(900_000))
    await asyncio.sleep(0.5)
    assert answered == 10, "8 MiB hold nine of them, and one may exceed the bound"
    await asyncio.gather(*asked)
    assert most < 9 * MIB
    assert (peers.memory.taken, peers.memory.waiting) == (0, 0)
    await machine.stop()
