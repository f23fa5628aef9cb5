"""A Consumer with assigned partitions of its own that records its actions in the history."""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Consumer, TopicPartition
from semel.errors import KafkaError

from sim.events import NO_TXN, Place
from sim.history import Recorder
from sim.workloads.base import ClientContext, raise_unexpected
from sim.workloads.recording_producer import PAUSE_S


class RecordingConsumer:
    """Reads `places` from their first record on. `from_0`: the first offset is certainly 0."""

    def __init__(
        self,
        context: ClientContext,
        name: str,
        places: list[Place],
        settings: dict[str, Any],
        *,
        read_committed: bool,
        from_0: bool = True,
    ) -> None:
        self.recorder = context.history.recorder(name)
        self._places = [TopicPartition(*place) for place in places]
        self.read_committed, self._from_0 = read_committed, from_0
        self.consumer = Consumer(
            **context.settings(
                client_id=name,
                auto_offset_reset="earliest",
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                **settings,
            )
        )

    async def start(self) -> None:
        """Raise KafkaError."""
        self.recorder.consuming(read_committed=self.read_committed)
        await self.consumer.start()
        self.consumer.assign(self._places)
        self._at_the_start()

    async def poll(self, timeout_ms: int, *, txn: int = NO_TXN) -> int:
        """Read at most max_poll_records records. Returns their number. Raises KafkaError."""
        return noted(self.recorder, await self.consumer.getmany(timeout_ms=timeout_ms), txn)

    async def rewind(self) -> None:
        """Seek to the start. Raises KafkaError; the seek may still take effect then."""
        self.recorder.assigned(self._places)
        await self.consumer.seek_to_beginning()
        self._at_the_start()

    def _at_the_start(self) -> None:
        self.recorder.assigned(self._places, positions=(0 if self._from_0 else -1,) * len(self._places))


async def opened(
    context: ClientContext, name: str, places: list[Place], settings: dict[str, Any], **more: bool
) -> RecordingConsumer:
    """A started consumer, after as many attempts as needed."""
    while True:
        reader = RecordingConsumer(
            context, name, places, settings, read_committed=more["read_committed"], from_0=more.get("from_0", True)
        )
        try:
            await reader.start()
            return reader
        except KafkaError as error:
            raise_unexpected(error)
            await asyncio.sleep(PAUSE_S)


def noted(recorder: Recorder, polled: Any, txn: int = NO_TXN) -> int:
    """Record the records that a call returned. Returns their number."""
    for place, records in polled.items():
        recorder.polled(
            place,
            [record.offset for record in records],
            [text(record.value) for record in records],
            [text(record.key) for record in records],
            txn=txn,
        )
    return sum(map(len, polled.values()))


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
