"""A suite kills and starts brokers by a line of text; an impossible command is answered with an error."""

from __future__ import annotations

import asyncio

import pytest

from tools.strangers.brokers import only
from tools.strangers.control import Control


class RecordedControls:
    """Brokers that note what is done to them."""

    version = "none"
    address = ""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def problems(self) -> list[str]:
        return []

    async def start(self, index: int) -> None:
        self.done.append(("start", index))

    async def stop(self, index: int) -> None:
        self.done.append(("stop", index))

    async def kill(self, index: int) -> None:
        only(index, 3)
        self.done.append(("kill", index))


async def test_lines_over_tcp_are_executed_in_order_and_answered() -> None:
    brokers = RecordedControls()
    control = Control(brokers)
    host, _, port = (await control.open()).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"kill 0\nstart 0\nrestart 2\n")
    assert [await reader.readline() for _ in range(3)] == [b"ok\n"] * 3
    assert brokers.done == [("kill", 0), ("start", 0), ("stop", 2), ("start", 2)]
    writer.close()
    await control.close()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kill 7\n", "there is no broker 7; there are 3"),
        ("burn 0\n", "unknown action 'burn'"),
        ("kill\n", "send:"),
        ("kill -1\n", "send:"),
    ],
)
async def test_an_impossible_command_is_answered_with_the_error(line: str, words: str) -> None:
    answer = await Control(RecordedControls()).answer(line)
    assert answer.startswith("error: ")
    assert words in answer
