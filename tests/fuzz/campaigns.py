"""The campaigns of `make fuzz`, each run with one seed at a time.

A campaign returns the number of inputs that it tried and the longest turn of the loop. It raises the fault that it
finds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random

import msgspec
from fuzz.client_run import ClientRun
from fuzz.conversations import PIPELINING, SERVED, SWELLING, TWO_PHASE, ConversationMaker
from fuzz.damaged_directory import DamagedDirectory
from fuzz.damaged_log import DamagedLog
from fuzz.fuzzed_broker import FuzzedBroker
from fuzz.logins import LoginFuzzer
from fuzz.mutations import framed
from fuzz.oracle import FETCH
from fuzz.produced_batches import batches, produce_and_look
from fuzz.shrink import smallest

AT_ONCE = 8
ROUNDS = 6
BOMBS_EVERY = 4
REST_S = 30.0
ARENA_SETTINGS = {TWO_PHASE: "true"}
TURN_S_MAX = 0.05
"""A turn of the event loop with more CPU time than this is a finding."""
TURN_RUNS = 3
ELEMENTS = 90_000
"""Slightly below the limit for one request."""
PIPELINED = 5_000
LARGE_REQUESTS = 2
UNREAD_FETCHES = 200


class CampaignResult(msgspec.Struct):
    """`count`: the number of frames, batches, answers or directories.

    `longest_turn_s`: CPU time of the longest turn of the loop.
    """

    count: int
    longest_turn_s: float = 0.0


class SlowTurn(AssertionError):  # noqa: N818 (named for what it tells)
    """A turn of the event loop took too long."""


class FaultFoundError(AssertionError):
    """A fault, with conversations that show it on a new target, as few and short as the search could make them."""

    def __init__(self, message: str, conversations: list[list[bytes]]) -> None:
        super().__init__(message)
        self.conversations = conversations


def requests(seed: int) -> CampaignResult:
    """Requests of every served API and version, from the grammar and mutated, to a broker with all kinds of state."""
    random = Random(seed)
    target = FuzzedBroker.open(**ARENA_SETTINGS)
    maker = ConversationMaker(target, random)
    said: list[list[bytes]] = []
    order = random.sample(SERVED, len(SERVED))
    try:
        for start in range(0, len(order), AT_ONCE):
            now = [maker.conversation(*case) for case in order[start : start + AT_ONCE]]
            said += now
            target.talk(*now, random=random)
        target.run(target.pass_time(REST_S))
        target.close()
    except (Exception, AssertionError) as error:
        raise FaultFoundError(f"{type(error).__name__}: {error}", smallest(said, fails)) from error
    return CampaignResult(sum(map(len, said)), target.loop.longest_turn_s)


def fails(conversations: list[list[bytes]]) -> bool:
    """Whether conversations show a fault on a new target."""
    try:
        replay(conversations)
    except (Exception, AssertionError):
        return True
    return False


def replay(conversations: list[list[bytes]]) -> None:
    """Play conversations one after the other on a new target. Raises the fault."""
    target = FuzzedBroker.open(**ARENA_SETTINGS)
    for conversation in conversations:
        target.talk(conversation)
    target.run(target.pass_time(REST_S))
    target.close()


def crowds(seed: int) -> CampaignResult:
    """Send too much valid input: requests of the largest size, thousands of pipelined requests, incomplete frames,
    and unread answers.
    """
    random = Random(seed)
    target = FuzzedBroker.open(**ARENA_SETTINGS)
    maker = ConversationMaker(target, random)
    said = [[maker.swollen(*random.choice(SWELLING), ELEMENTS)] for _ in range(LARGE_REQUESTS)]
    small = framed(maker.made(*random.choice(PIPELINING), 0.0)[0])
    said += [[small] * PIPELINED for _ in range(2)]
    whole = framed(maker.made(FETCH, 11, 0.0)[0])
    silent = [whole * UNREAD_FETCHES, said[0][0][: random.randrange(8, len(said[0][0]))], b"\x05\0\0\0\0\0\0\x07\0"]
    target.loop.forget_turns()
    target.talk_beside(said, silent * 4)
    longest_turn_s = target.loop.longest_turn_s
    target.close()
    return CampaignResult(sum(map(len, said)), longest_turn_s)


def judged(name: str, seed: int) -> CampaignResult:
    """Run one seed of a campaign. Raises the fault, and SlowTurn if each of `TURN_RUNS` runs has a long turn."""
    gc.collect()
    tried = CAMPAIGNS[name](seed)
    for _ in range(TURN_RUNS - 1):
        if tried.longest_turn_s <= TURN_S_MAX:
            break
        gc.collect()
        tried.longest_turn_s = min(tried.longest_turn_s, CAMPAIGNS[name](seed).longest_turn_s)
    if tried.longest_turn_s > TURN_S_MAX:
        raise SlowTurn(f"a turn of the loop took {tried.longest_turn_s * 1000:.0f} ms of CPU")
    return tried


def record_batches(seed: int) -> CampaignResult:
    """Malformed batches in valid Produce requests, also decompression bombs and batches of very many records. Then all
    requests that read records."""
    random = Random(seed)
    bombs = seed % BOMBS_EVERY == 0
    target = FuzzedBroker.open(log_segment_bytes="20000" if not bombs else "5000000")
    count = 0
    target.loop.forget_turns()
    for _ in range(ROUNDS):
        asks = batches(random, target.producers, bombs=bombs)
        produce_and_look(target, asks)
        count += len(asks)
    target.run(target.pass_time(REST_S))
    produce_and_look(target, [])
    target.close()
    return CampaignResult(count, target.loop.longest_turn_s)


def responses(seed: int) -> CampaignResult:
    """Producers, consumers and admins that get altered answers."""
    clients = ClientRun(Random(seed))
    return CampaignResult(clients.run(), clients.target.loop.longest_turn_s)


def log_files(seed: int) -> CampaignResult:
    """A start over damaged files of one log."""
    damaged = DamagedLog(Random(seed))
    damaged.build()
    damaged.damage()
    damaged.judge()
    return CampaignResult(1)


def directories(seed: int) -> CampaignResult:
    """A start over a damaged data directory, with the store and the internal topics."""
    DamagedDirectory(Random(seed)).run()
    return CampaignResult(1)


def logins(seed: int) -> CampaignResult:
    """Frames of logins and of other requests at a listener with SASL, from clients without a password."""
    fuzzer = LoginFuzzer(Random(seed))
    return CampaignResult(fuzzer.run(), fuzzer.target.loop.longest_turn_s)


CAMPAIGNS: dict[str, Callable[[int], CampaignResult]] = {
    "requests": requests,
    "crowds": crowds,
    "logins": logins,
    "record_batches": record_batches,
    "responses": responses,
    "log_files": log_files,
    "directories": directories,
}
