"""Makes conversations for a broker: valid, mutated, spliced and misframed frames.

`SERVED` lists every API and version that a broker offers.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from fuzz.fuzzed_broker import FuzzedBroker
from fuzz.grammar import Grammar, arrays_of
from fuzz.mutations import change_a_length, framed, misframed, mutate, splice
from semel_broker.config.loading import load
from semel_broker.handlers import HANDLERS
from semel_broker.handlers.api_versions import offered
from semel_protocol.api import APIS

WIRE_CASES = Path(__file__).parents[1] / "data" / "wire-cases.txt"
TWO_PHASE = "transaction.two.phase.commit.enable"
WILDNESS = (0.0, 0.0, 0.01, 0.05, 0.3)
FRAMES = (1, 1, 2, 3)

SERVED: list[tuple[int, int]] = [
    (key, version)
    for key, (_, high) in sorted(offered(load(overrides=[f"{TWO_PHASE}=true"]), has_telemetry=True).items())
    if key in HANDLERS
    for version in range(APIS[key].low, high + 1)
]
"""(API key, version) of every API that a broker serves with all features on."""

SWELLING = [(key, version) for key, version in SERVED if any(arrays_of(APIS[key].request, version))]
"""The members of `SERVED` whose requests have arrays."""
PIPELINING = [(3, 7), (18, 3), (12, 4), (10, 3), (2, 6), (8, 7), (9, 7), (19, 4), (22, 4)]
"""(API key, version) of some short requests."""


class ConversationMaker:
    """Makes conversations for one target from one `Random`."""

    def __init__(self, target: FuzzedBroker, random: Random, *, bombs: bool = False) -> None:
        self.target, self.random, self.bombs = target, random, bombs
        self._correlation_id = 1_000

    def conversation(self, key: int, version: int) -> list[bytes]:
        """Some frames for one connection. The first is of this API and version."""
        frames = [self.frame(key, version)]
        for _ in range(self.random.choice(FRAMES) - 1):
            frames.append(self.frame(*self.random.choice(SERVED)))
        return frames

    def frame(self, key: int, version: int) -> bytes:
        """A frame of this API and version, valid or malformed in one way."""
        random = self.random
        body, lengths = self.made(key, version, random.choice(WILDNESS))
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                return framed(body)
            case 4 | 5:
                return framed(mutate(body, random, times=random.choice((1, 1, 2, 4))))
            case 6 | 7:
                return framed(change_a_length(body, lengths, random))
            case 8:
                other, _ = self.made(*random.choice(SERVED), 0.0)
                return framed(splice(body, random.choice((other, random.choice(self.target.recorded))), random))
            case _:
                return random.choice((misframed(body, random), framed(self.recorded())))

    def made(self, key: int, version: int, wildness: float) -> tuple[bytes, list[tuple[int, int]]]:
        """A message by the grammar, and the positions of its lengths."""
        self._correlation_id += 1
        grammar = Grammar(self.random, self.target.pools_with_batches(self.random, bombs=self.bombs), wildness)
        body = grammar.request(APIS[key], version, self._correlation_id)
        return body, grammar.lengths

    def swollen(self, key: int, version: int, elements: int) -> bytes:
        """A frame of this API and version with `count` elements, or of the largest allowed size."""
        self._correlation_id += 1
        grammar = Grammar(self.random, self.target.pools_with_batches(self.random), elements_max=elements)
        return framed(grammar.request(APIS[key], version, self._correlation_id))

    def recorded(self) -> bytes:
        """A mutated copy of a frame that a client sent to this target."""
        return mutate(self.random.choice(self.target.recorded), self.random)


def corpus() -> list[tuple[int, int, bytes]]:
    """(key, version, body) of the requests that Kafka's own encoder wrote and that semel serves."""
    rows = (line.split() for line in WIRE_CASES.read_text().splitlines() if not line.startswith("#"))
    return [
        (int(key), int(version), b"" if body == "-" else bytes.fromhex(body))
        for key, direction, version, body in rows
        if direction == "Q" and (int(key), int(version)) in SERVED
    ]
