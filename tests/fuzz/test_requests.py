"""Malformed requests: the broker answers with an error or closes that one connection, and serves other clients.

A short pass of the campaigns. `make fuzz` runs for longer (docs/proof.md).
"""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

import pytest
from fuzz.campaigns import (
    ARENA_SETTINGS,
    CAMPAIGNS,
    TURN_S_MAX,
    CampaignResult,
    SlowTurn,
    crowds,
    judged,
    logins,
    requests,
)
from fuzz.conversations import SERVED, ConversationMaker, corpus
from fuzz.fuzzed_broker import FuzzedBroker
from fuzz.grammar import Grammar
from fuzz.mutations import framed, mutate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from semel_broker.handlers import HANDLERS
from semel_protocol.api import APIS
from semel_protocol.headers import read_request_header

AT_ONCE = 50


def header_of(key: int, version: int) -> bytes:
    tags = b"\x00" if APIS[key].is_flexible(version) else b""
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\x00\x04fuzz" + tags


def test_every_handler_takes_its_turn() -> None:
    assert {key for key, _ in SERVED} == set(HANDLERS)


@pytest.mark.parametrize("seed", range(8))
def test_any_request_is_answered_or_closes_its_own_connection(seed: int) -> None:
    requests(seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_crowd_that_asks_for_too_much_leaves_the_broker_well(seed: int) -> None:
    """Each takes one or two seconds, because the requests are of the largest size."""
    crowds(seed)


@pytest.mark.proves("unauthenticated-clients")
@pytest.mark.parametrize("seed", range(3))
def test_odd_logins_are_refused_and_nothing_is_served_before(seed: int) -> None:
    logins(seed)


def test_a_turn_that_is_long_each_time_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter((2.0, 0.5, 2.0, 2.0, 1.2, 2.0))
    monkeypatch.setitem(CAMPAIGNS, "requests", lambda seed: CampaignResult(1, next(turns) * TURN_S_MAX))
    assert judged("requests", 1).longest_turn_s == 0.5 * TURN_S_MAX
    with pytest.raises(SlowTurn, match="60 ms"):
        judged("requests", 1)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SERVED), st.randoms(use_true_random=False))
def test_any_conversation_leaves_the_broker_well(case: tuple[int, int], random: Random) -> None:
    target = FuzzedBroker.open(**ARENA_SETTINGS)
    target.talk(ConversationMaker(target, random).conversation(*case), random=random)
    target.close()


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_valid_messages_of_the_grammar_decode(key: int, version: int) -> None:
    api = APIS[key]
    random = Random(key * 100 + version)
    for _ in range(10):
        frame = Grammar(random, {}).request(api, version)
        header = read_request_header(frame)
        _, end = api.request_codec(version).decode_at(frame, header.body_at(api, frame))
        assert end == len(frame)


NOT_IN_CORPUS = {20_001, 20_002, 20_003, 20_004}
"""semel's own requests."""


def test_random_messages_of_kafkas_own_encoder_find_no_bug() -> None:
    cases = corpus()
    assert {key for key, _, _ in cases} >= set(HANDLERS) - NOT_IN_CORPUS
    target = FuzzedBroker.open(**ARENA_SETTINGS)
    frames = [[framed(header_of(key, version) + body)] for key, version, body in cases]
    for start in range(0, len(frames), AT_ONCE):
        target.talk(*frames[start : start + AT_ONCE])
    assert target.answered > len(frames) // 2
    target.close()


@pytest.mark.proves("empty-message")
def test_mutants_of_kafkas_own_messages_find_no_bug() -> None:
    random = Random(1)
    target = FuzzedBroker.open(**ARENA_SETTINGS)
    frames = [[framed(mutate(header_of(key, version) + body, random))] for key, version, body in corpus()]
    for start in range(0, len(frames), AT_ONCE):
        target.talk(*frames[start : start + AT_ONCE])
    target.close()


ROUNDS = 4
SAME_AGAIN = 200
GROWTH_BYTES_PER_FRAME_MAX = 60
"""Records of the other client, the index, caches and Python's counters grow a little. A leak takes hundreds."""


def test_memory_stays_flat_under_the_same_frames_again_and_again() -> None:
    few = {"connections_max_idle_ms": "10000000", "max_incremental_fetch_session_cache_slots": "3"}
    target = FuzzedBroker.open(**ARENA_SETTINGS, **few)
    maker = ConversationMaker(target, Random(5))
    conversations = [maker.conversation(*maker.random.choice(SERVED)) for _ in range(SAME_AGAIN)]
    frames = sum(map(len, conversations))

    def play() -> int:
        for start in range(0, SAME_AGAIN, AT_ONCE):
            target.talk(*conversations[start : start + AT_ONCE])
        target.run(target.pass_time(2_000))  # sessions end
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - target.memory_of_files

    tracemalloc.start()
    try:
        play()
        before = play()
        grown = [play() - before for _ in range(ROUNDS)][-1]
    finally:
        tracemalloc.stop()
    target.close()
    assert grown < GROWTH_BYTES_PER_FRAME_MAX * frames * ROUNDS, f"{grown} bytes in {frames * ROUNDS} frames"
