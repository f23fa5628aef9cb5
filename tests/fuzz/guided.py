"""Fuzzing of requests guided by coverage: `python -m fuzz.guided`, with atheris (optional; pip install atheris).

The bytes from libFuzzer are the random numbers from which conversations are made. Arguments are libFuzzer's:
`-max_total_time=600`, `-seed=7`, a directory for the corpus.
"""

from __future__ import annotations

import logging
import sys
from random import Random

import atheris

with atheris.instrument_imports(include=["semel_protocol", "semel_broker", "semel_storage"]):
    from fuzz.campaigns import ARENA_SETTINGS
    from fuzz.conversations import SERVED, ConversationMaker
    from fuzz.fuzzed_broker import FuzzedBroker

CONVERSATIONS = 4
INPUTS_PER_ARENA = 100
BYTES_MAX = 4096


class ByteRandom(Random):
    """A `Random` whose numbers are read from bytes; zeros after their end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        size = (k + 7) // 8
        chunk = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(chunk, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(16) / 65536

    def randbytes(self, n: int) -> bytes:
        return self.getrandbits(8 * n).to_bytes(n, "little") if n else b""


class GuidedTarget:
    """One target for `INPUTS_PER_ARENA` inputs. Then it is closed, which checks all data, and replaced by a new one."""

    def __init__(self) -> None:
        self._target = FuzzedBroker.open(**ARENA_SETTINGS)
        self._inputs = 0

    def one_input(self, data: bytes) -> None:
        random = ByteRandom(data)
        maker = ConversationMaker(self._target, random)
        for _ in range(CONVERSATIONS):
            self._target.talk(maker.conversation(*random.choice(SERVED)))
        self._inputs += 1
        if self._inputs % INPUTS_PER_ARENA == 0:
            self._target.close()
            self._target = FuzzedBroker.open(**ARENA_SETTINGS)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    atheris.Setup([sys.argv[0], f"-max_len={BYTES_MAX}", "-len_control=0", *sys.argv[1:]], GuidedTarget().one_input)
    atheris.Fuzz()
