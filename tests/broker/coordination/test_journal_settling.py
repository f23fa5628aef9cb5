"""The journal settles every write, also a write at the very end of its settling task."""

from __future__ import annotations

from asyncio import Event, get_running_loop, sleep
from types import SimpleNamespace
from typing import Any

from semel_broker.coordination.journal import Journal
from semel_protocol.errors import ErrorCode


class SlowPartition:
    """Appends at once. The test decides when an append becomes durable."""

    def __init__(self) -> None:
        self.end_offset = self.high_watermark = 0
        self.index = 0
        self.synced = Event()

    def check_room(self) -> None:
        """Accept every write."""

    def append(self, _batch: Any, *, header: Any) -> None:
        self.end_offset += header.record_count
        self.synced.clear()

    async def committed(self, _offset: int) -> None:
        await self.synced.wait()

    def sync(self) -> None:
        self.high_watermark = self.end_offset
        self.synced.set()


async def test_a_write_between_the_end_of_settling_and_its_callback_is_applied() -> None:
    partition = SlowPartition()

    journal = Journal(SimpleNamespace(now_ms=lambda: 0), partition, passed=ErrorCode.NONE)  # type: ignore[arg-type]
    applied: list[str] = []
    refused: list[Exception] = []

    def first_applied() -> None:
        applied.append("first")
        # Runs after the settling task has ended, and before the callback that its end has scheduled.
        get_running_loop().call_soon(write_second)

    def write_second() -> None:
        assert journal._settling is None, "the turn in question"
        journal.write([(b"k", b"2")], lambda: applied.append("second"), refused.append)

    journal.write([(b"k", b"1")], first_applied, refused.append)
    await sleep(0)
    partition.sync()
    for _ in range(5):
        await sleep(0)
    assert applied == ["first"]
    partition.sync()
    for _ in range(5):
        await sleep(0)
    assert applied == ["first", "second"]
    assert refused == []
    await journal.close()
