"""The campaigns: what is fuzzed, one seed at a time. Each tells how much it tried and the longest turn of the loop, and
raises what it has found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random

import msgspec
from fuzz.arena import Arena
from fuzz.conversations import PIPELINING, SERVED, SWELLING, TWO_PHASE, Speaker
from fuzz.lied_to import LiedTo
from fuzz.mutations import framed
from fuzz.oracle import FETCH
from fuzz.records_talk import batches, produce_and_look
from fuzz.shipwreck import Shipwreck
from fuzz.shrink import smallest
from fuzz.wreck import Wreck

AT_ONCE = 8
ROUNDS = 6
BOMBS_EVERY = 4
REST_S = 30.0
ARENA_SETTINGS = {TWO_PHASE: "true"}
TURN_S_MAX = 0.05
"""CPU time of a turn of the event loop, from which on it is a finding."""
TURN_RUNS = 3
ELEMENTS = 90_000
"""Nearly as many as a request may have."""
PIPELINED = 5_000
LARGE_REQUESTS = 2
UNREAD_FETCHES = 200


class Tried(msgspec.Struct):
    """`count` of frames, batches, lies or directories; `longest_turn_s` of CPU in one turn of the event loop."""

    count: int
    longest_turn_s: float = 0.0


class SlowTurn(AssertionError):  # noqa: N818 (named for what it tells)
    """The event loop was held up."""


class Found(AssertionError):  # noqa: N818 (named for what it tells)
    """A fault, with the conversations that show it on an arena of their own, as few and short as could be found."""

    def __init__(self, message: str, conversations: list[list[bytes]]) -> None:
        super().__init__(message)
        self.conversations = conversations


def requests(seed: int) -> Tried:
    """Every API and version that is served, mutated and made by the grammar, against a broker that is full of state."""
    random = Random(seed)
    arena = Arena.open(**ARENA_SETTINGS)
    speaker = Speaker(arena, random)
    said: list[list[bytes]] = []
    order = random.sample(SERVED, len(SERVED))
    try:
        for start in range(0, len(order), AT_ONCE):
            now = [speaker.conversation(*case) for case in order[start : start + AT_ONCE]]
            said += now
            arena.talk(*now, random=random)
        arena.run(arena.pass_time(REST_S))
        arena.close()
    except (Exception, AssertionError) as error:
        raise Found(f"{type(error).__name__}: {error}", smallest(said, fails)) from error
    return Tried(sum(map(len, said)), arena.loop.longest_turn_s)


def fails(conversations: list[list[bytes]]) -> bool:
    """Whether they show a fault on an arena of their own."""
    try:
        replay(conversations)
    except (Exception, AssertionError):
        return True
    return False


def replay(conversations: list[list[bytes]]) -> None:
    """Hold them one after the other; raises what is wrong."""
    arena = Arena.open(**ARENA_SETTINGS)
    for conversation in conversations:
        arena.talk(conversation)
    arena.run(arena.pass_time(REST_S))
    arena.close()


def crowds(seed: int) -> Tried:
    """Too much of what may be sent: requests of the largest size, thousands pipelined, frames that never come whole,
    answers that are left unread."""
    random = Random(seed)
    arena = Arena.open(**ARENA_SETTINGS)
    speaker = Speaker(arena, random)
    said = [[speaker.swollen(*random.choice(SWELLING), ELEMENTS)] for _ in range(LARGE_REQUESTS)]
    small = framed(speaker.made(*random.choice(PIPELINING), 0.0)[0])
    said += [[small] * PIPELINED for _ in range(2)]
    whole = framed(speaker.made(FETCH, 11, 0.0)[0])
    silent = [whole * UNREAD_FETCHES, said[0][0][: random.randrange(8, len(said[0][0]))], b"\x05\0\0\0\0\0\0\x07\0"]
    arena.loop.forget_turns()
    arena.talk_beside(said, silent * 4)
    longest_turn_s = arena.loop.longest_turn_s
    arena.close()
    return Tried(sum(map(len, said)), longest_turn_s)


def judged(name: str, seed: int) -> Tried:
    """One seed of a campaign. Raises what it finds, and SlowTurn for a turn that is long each time."""
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


def record_batches(seed: int) -> Tried:
    """Batches that lie, bombs and crowds, in Produce requests that do not; then everything that looks at records."""
    random = Random(seed)
    bombs = seed % BOMBS_EVERY == 0
    arena = Arena.open(log_segment_bytes="20000" if not bombs else "5000000")
    count = 0
    arena.loop.forget_turns()
    for _ in range(ROUNDS):
        asks = batches(random, arena.producers, bombs=bombs)
        produce_and_look(arena, asks)
        count += len(asks)
    arena.run(arena.pass_time(REST_S))
    produce_and_look(arena, [])
    arena.close()
    return Tried(count, arena.loop.longest_turn_s)


def responses(seed: int) -> Tried:
    """Producers, consumers and admins that hear something else than their broker says."""
    lied_to = LiedTo(Random(seed))
    return Tried(lied_to.run(), lied_to.arena.loop.longest_turn_s)


def log_files(seed: int) -> Tried:
    """The files of one log."""
    wreck = Wreck(Random(seed))
    wreck.build()
    wreck.damage()
    wreck.judge()
    return Tried(1)


def directories(seed: int) -> Tried:
    """A whole data directory, the store and the internal topics included."""
    Shipwreck(Random(seed)).run()
    return Tried(1)


CAMPAIGNS: dict[str, Callable[[int], Tried]] = {
    "requests": requests,
    "crowds": crowds,
    "record_batches": record_batches,
    "responses": responses,
    "log_files": log_files,
    "directories": directories,
}
