"""A client of a scenario: executes its verbs, and names the outcome in the words of the scenario language.

`python -m faults.actor` runs one client in a process that can be stopped and killed. It reads commands from standard
input and writes outcomes to standard output, one JSON object in each line.
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


class StepOutcome(msgspec.Struct, frozen=True):
    """The outcome of a step. `outcome`: a word of the scenario language. `words`: the client's error message."""

    outcome: str
    words: str = ""


OK = StepOutcome("ok")


class ActorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a `client` line. `patience_s`: the time after which the client gives up a step."""

    name: str
    bootstrap: str
    library: str = "semel"
    transactional_id: str | None = None
    timeout_ms: int = 60_000
    patience_s: float = DEFAULT_PATIENCE_S
    group: str | None = None
    topic: str | None = None


class Actor(ABC):
    """A producer, and a consumer if the client has a group. `do` returns the client's error as a StepOutcome."""

    def __init__(self, settings: ActorOptions) -> None:
        self.settings = settings

    async def start(self) -> StepOutcome:
        return await self._tell(self._start())

    async def do(self, verb: str, words: list[str]) -> StepOutcome:
        return await self._tell(getattr(self, verb)(*words))

    async def _tell(self, doing: Any) -> StepOutcome:
        try:
            await doing
        except self.errors as error:
            return StepOutcome(self.outcome_of(error), f"{type(error).__name__}: {error}")
        except _Unexpected as error:
            return StepOutcome("refused", str(error))
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
        """Send records and wait until all are stored."""

    @abstractmethod
    async def put(self, topic: str, partition: str, *values: str) -> None:
        """Send records without waiting. The end of the transaction reports their errors."""

    @abstractmethod
    async def read(self, *values: str) -> None:
        """Read the next records, which must have these values."""

    @abstractmethod
    async def offsets(self, group: str, topic: str, partition: str, offset: str) -> None:
        """Send an offset of any group as part of the transaction, without being a member."""

    @abstractmethod
    async def positions(self) -> None:
        """Send the positions of the consumer as part of the transaction, as a member of the group."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    def check_read(self, found: list[str], wanted: tuple[str, ...]) -> None:
        if tuple(found) != wanted:
            raise _Unexpected(f"read {' '.join(found) or 'nothing'} instead of {' '.join(wanted)}")


class _Unexpected(Exception):  # noqa: N818 (it is an outcome of a scenario, not a bug)
    """The records read are not those of the scenario."""


def make(settings: ActorOptions) -> Actor:
    if settings.library == "confluent":
        from faults.actor_confluent import ConfluentActor

        return ConfluentActor(settings)
    from faults.actor_semel import SemelActor

    return SemelActor(settings)


async def serve(settings: ActorOptions) -> None:
    """Execute the commands from standard input one after the other, until its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    actor = make(settings)
    say(await actor.start())
    while line := await reader.readline():
        command = json.loads(line)
        say(await actor.do(command["verb"], command["words"]))


def say(outcome: StepOutcome) -> None:
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="Settings as JSON")
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve(msgspec.json.decode(parser.parse_args().settings, type=ActorOptions)))


if __name__ == "__main__":
    from faults import actor  # under its name, so that its classes are those that other modules import

    actor.main()
