"""A client of a scenario: what each of its verbs means, and in which words its outcome is told.

`python -m faults.actor` is one of them in a process of its own, which can be stopped and killed: commands come in on
standard input and outcomes go out, a JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from abc import ABC, abstractmethod
from typing import Any

import msgspec

DEFAULT_PATIENCE_S = 10.0
SESSION_MS = 2_000


class Outcome(msgspec.Struct, frozen=True):
    """`outcome` is a word of the language; `words` are the client's own."""

    outcome: str
    words: str = ""


OK = Outcome("ok")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a `client` line says. `patience_s`: how long it tries before it gives up a step."""

    name: str
    bootstrap: str
    library: str = "semel"
    transactional_id: str | None = None
    timeout_ms: int = 60_000
    patience_s: float = DEFAULT_PATIENCE_S
    group: str | None = None
    topic: str | None = None


class Actor(ABC):
    """One producer, one consumer, or both of them. `do` never raises what the client raises: it becomes an Outcome."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def start(self) -> Outcome:
        return await self._tell(self._start())

    async def do(self, verb: str, words: list[str]) -> Outcome:
        return await self._tell(getattr(self, verb)(*words))

    async def _tell(self, doing: Any) -> Outcome:
        try:
            await doing
        except self.errors as error:
            return Outcome(self.outcome_of(error), f"{type(error).__name__}: {error}")
        except _Unexpected as error:
            return Outcome("refused", str(error))
        return OK

    errors: tuple[type[Exception], ...]

    @abstractmethod
    def outcome_of(self, error: Exception) -> str: ...

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def send(self, topic: str, partition: str, *values: str) -> None:
        """Until all of them are stored."""

    @abstractmethod
    async def put(self, topic: str, partition: str, *values: str) -> None:
        """Sends without waiting; what becomes of it is for the end of the transaction to tell."""

    @abstractmethod
    async def read(self, *values: str) -> None:
        """The next records, which must be these."""

    @abstractmethod
    async def offsets(self, group: str, topic: str, partition: str, offset: str) -> None:
        """In the transaction, of a group whoever its members are."""

    @abstractmethod
    async def positions(self) -> None:
        """In the transaction, of what was read, as a member of the group."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    def check_read(self, found: list[str], wanted: tuple[str, ...]) -> None:
        if tuple(found) != wanted:
            raise _Unexpected(f"read {' '.join(found) or 'nothing'} instead of {' '.join(wanted)}")


class _Unexpected(Exception):  # noqa: N818 (named for what it tells)
    """What was read is not what the scenario says."""


def make(settings: Settings) -> Actor:
    if settings.library == "confluent":
        from faults.actor_confluent import ConfluentActor

        return ConfluentActor(settings)
    from faults.actor_semel import SemelActor

    return SemelActor(settings)


async def serve(settings: Settings) -> None:
    """Commands of standard input, one after the other, until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    actor = make(settings)
    say(await actor.start())
    while line := await reader.readline():
        command = json.loads(line)
        say(await actor.do(command["verb"], command["words"]))


def say(outcome: Outcome) -> None:
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="Settings as JSON")
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve(msgspec.json.decode(parser.parse_args().settings, type=Settings)))


if __name__ == "__main__":
    from faults import actor  # by its name, so that its classes are those that others import

    actor.main()
