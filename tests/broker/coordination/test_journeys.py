"""The number of broker files that one request enters: a reader of the request has to open each of them.

The figures and the reasons for them: docs/decisions/0021-files-that-a-request-enters.md.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import semel_broker
from broker.harness import Harness
from broker.members import WireMember
from broker.transactional import TransactionalProducer
from broker.wire import batch

ROOT = Path(semel_broker.__file__).parent
OURS = ("coordination", "groups", "handlers", "txn")
"""The folders of coordinators and of their handlers."""


@contextmanager
def entered() -> Iterator[dict[str, None]]:
    """Record the files of the broker that are entered inside the block, relative to its folder."""
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            files[str(path.relative_to(ROOT))] = None

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


async def files_of(request: Callable[[], Awaitable[object]]) -> tuple[list[str], list[str]]:
    """The files that the request enters: those of the coordinators, and the others."""
    await asyncio.sleep(0.1)  # real time: timers and syncs of earlier requests are over
    with entered() as files:
        await request()
        await asyncio.sleep(0)
    ours = [each for each in files if each.split("/")[0] in OURS]
    return ours, [each for each in files if each not in ours and not each.startswith("counters/")]


async def test_a_produce_enters_4_files_of_its_handler_and_18_others(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await wire.produce("t", batch(b"the log exists from here on"))
    ours, others = await files_of(lambda: wire.produce("t", batch(b"x")))
    assert len(ours) <= 4, ours
    assert len(others) <= 18, others


async def test_an_end_txn_enters_12_files_of_the_coordinator_and_15_others(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    producer = await TransactionalProducer(wire).init()
    for _ in range(2):
        assert (await producer.produce("t", b"x")).error_code == 0
        ours, others = await files_of(producer.end)
    assert len(ours) <= 12, ours
    assert len(others) <= 15, others


async def test_a_join_group_enters_11_files_of_the_coordinator_and_13_others(broker: Harness) -> None:
    member = WireMember(await broker.wire())
    member.member_id = (await member.wire.call(member.join_request())).member_id
    ours, others = await files_of(member.join)
    assert member.generation == 1
    assert len(ours) <= 11, ours
    assert len(others) <= 13, others
