"""Tests of the fuzzing tools: virtual time, the search for the smallest failure, and the detection of faults."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from fuzz import campaigns
from fuzz.conversations import SERVED, ConversationMaker
from fuzz.fuzzed_broker import FuzzedBroker
from fuzz.mutations import framed
from fuzz.shrink import smallest
from semel_broker.handlers import HANDLERS
from support.virtual_loop import NothingScheduledError, VirtualLoop


def test_time_jumps_to_the_next_timer() -> None:
    loop = VirtualLoop()
    began = loop.time()
    loop.run_until_complete(asyncio.sleep(1_000_000))
    assert loop.time() - began == pytest.approx(1_000_000)
    loop.close()


def test_a_wait_that_cannot_end_is_reported() -> None:
    loop = VirtualLoop()
    with pytest.raises(NothingScheduledError):
        loop.run_until_complete(asyncio.Event().wait())
    loop.close()


def test_same_seed_makes_the_same_conversations() -> None:
    def said() -> list[list[bytes]]:
        maker = ConversationMaker(FuzzedBroker.open(), Random(3))
        return [maker.conversation(*case) for case in SERVED]

    assert said() == said()


def test_smallest_failure_is_found() -> None:
    noise = [[framed(b"abc"), framed(b"de")] for _ in range(9)]
    conversations = [*noise[:4], [framed(b"..."), framed(b"..bad..")], *noise[4:]]
    found = smallest(conversations, lambda some: any(b"bad" in frame for frames in some for frame in frames))
    assert found == [[framed(b"bad")]]


def test_crash_of_a_handler_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    describe_cluster = 60

    async def crash(*_: object) -> None:
        raise ZeroDivisionError("found me")

    def search() -> None:
        for seed in range(20):  # not every seed reaches the handler
            campaigns.requests(seed)

    monkeypatch.setitem(HANDLERS, describe_cluster, crash)
    with pytest.raises(campaigns.FaultFoundError, match="found me") as found:
        search()
    (conversation,) = found.value.conversations
    (frame,) = conversation
    assert int.from_bytes(frame[4:6], "big") == describe_cluster
