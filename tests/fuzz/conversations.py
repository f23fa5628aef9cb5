"""What to send to a broker: conversations of frames, each in one of the ways to go wrong.

Every API and version that a broker offers takes its turn (`SERVED`).
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from fuzz.arena import Arena
from fuzz.grammar import Grammar, arrays_of
from fuzz.mutations import framed, lie_about_a_length, misframed, mutate, splice
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
    for key, (_, high) in sorted(offered(load(overrides=[f"{TWO_PHASE}=true"])).items())
    if key in HANDLERS
    for version in range(APIS[key].low, high + 1)
]
"""(API key, version): everything that a broker with all features on answers."""

SWELLING = [(key, version) for key, version in SERVED if any(arrays_of(APIS[key].request, version))]
"""Those whose requests can have many elements."""
PIPELINING = [(3, 7), (18, 3), (12, 4), (10, 3), (2, 6), (8, 7), (9, 7), (19, 4), (22, 4)]
"""Some that are short."""


class Speaker:
    """Makes conversations for one arena out of one source of chance."""

    def __init__(self, arena: Arena, random: Random, *, bombs: bool = False) -> None:
        self.arena, self.random, self.bombs = arena, random, bombs
        self._correlation_id = 1_000

    def conversation(self, key: int, version: int) -> list[bytes]:
        """A few frames on one connection; the first is of this API and version."""
        frames = [self.frame(key, version)]
        for _ in range(self.random.choice(FRAMES) - 1):
            frames.append(self.frame(*self.random.choice(SERVED)))
        return frames

    def frame(self, key: int, version: int) -> bytes:
        """Bytes that may pass for a frame of this API and version."""
        random = self.random
        body, lengths = self.made(key, version, random.choice(WILDNESS))
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                return framed(body)
            case 4 | 5:
                return framed(mutate(body, random, times=random.choice((1, 1, 2, 4))))
            case 6 | 7:
                return framed(lie_about_a_length(body, lengths, random))
            case 8:
                other, _ = self.made(*random.choice(SERVED), 0.0)
                return framed(splice(body, random.choice((other, random.choice(self.arena.recorded))), random))
            case _:
                return random.choice((misframed(body, random), framed(self.recorded())))

    def made(self, key: int, version: int, wildness: float) -> tuple[bytes, list[tuple[int, int]]]:
        """A message by the grammar, and where its lengths stand."""
        self._correlation_id += 1
        grammar = Grammar(self.random, self.arena.aimed(self.random, bombs=self.bombs), wildness)
        body = grammar.request(APIS[key], version, self._correlation_id)
        return body, grammar.lengths

    def swollen(self, key: int, version: int, elements: int) -> bytes:
        """A frame of this API and version with so many elements, or as large as it may be."""
        self._correlation_id += 1
        grammar = Grammar(self.random, self.arena.aimed(self.random), elements_max=elements)
        return framed(grammar.request(APIS[key], version, self._correlation_id))

    def recorded(self) -> bytes:
        """A mutant of a frame that a client really sent here."""
        return mutate(self.random.choice(self.arena.recorded), self.random)


def corpus() -> list[tuple[int, int, bytes]]:
    """(key, version, body) of the requests that Kafka's own encoder wrote and that a broker here serves."""
    rows = (line.split() for line in WIRE_CASES.read_text().splitlines() if not line.startswith("#"))
    return [
        (int(key), int(version), b"" if body == "-" else bytes.fromhex(body))
        for key, direction, version, body in rows
        if direction == "Q" and (int(key), int(version)) in SERVED
    ]
