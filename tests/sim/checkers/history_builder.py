"""Builds histories by hand for the tests of checkers. The clock ticks with each event; lists give the final state."""

from __future__ import annotations

from collections.abc import Iterable

from sim.checkers import CHECKERS, HistoryIndex
from sim.events import NO_TXN, HistoryTopic
from sim.final import Final, LogBatch, PartitionEnd, ReadRecord
from sim.history import History, Recorder

T0 = ("t", 0)
T1 = ("t", 1)


class HistoryBuilder:
    """Builds a history of topic "t" (two partitions), with short methods for frequent events."""

    def __init__(self, cleanup: str = "") -> None:
        self.clock_ms = 0.0
        self.history = History(self.tick)
        self.history.declare(HistoryTopic("t", 2, cleanup))
        self.final = Final()

    def tick(self) -> float:
        self.clock_ms += 1
        return self.clock_ms

    def recorder(self, name: str) -> Recorder:
        return self.history.recorder(name)

    def send(
        self,
        client: Recorder,
        value: str | None,
        offset: int | None = None,
        *,
        partition: int = 0,
        txn: int = NO_TXN,
        key: str | None = None,
        topic: str = "t",
        made_from: str | None = None,
        idempotent: bool = True,
    ) -> int:
        """A send. It is acknowledged if it has an offset."""
        op = client.sending(
            topic, partition, value=value, key=key, txn=txn, made_from=made_from, idempotent=idempotent
        )  # fmt: skip
        if offset is not None:
            client.stored(op, partition, offset)
        return op

    def transaction(
        self, client: Recorder, *writes: tuple[str, int, int], end: str = "committed", owner: str = ""
    ) -> int:
        """A whole transaction of (value, partition, offset); `end`: committed, aborted, unknown, or open."""
        txn = client.beginning(owner or client.client.partition("#")[0])
        for value, partition, offset in writes:
            self.send(client, value, offset, partition=partition, txn=txn)
        if end in ("committed", "unknown"):
            client.committing(txn)
        if end == "committed":
            client.committed(txn)
        if end == "aborted":
            client.aborted(txn)
        return txn

    def consumer(self, name: str = "reader", *, group: str = "", read_committed: bool = True) -> Recorder:
        client = self.recorder(name)
        client.consuming(group, read_committed=read_committed)
        return client

    def ends(
        self,
        rows: Iterable[tuple[int, str | None]] = (),
        *,
        aborted: Iterable[tuple[int, str | None]] = (),
        place: tuple[str, int] = T0,
        start_offset: int = 0,
        keys: dict[int, str] | None = None,
        batches: list[LogBatch] | None = None,
        stable: int | None = None,
    ) -> None:
        """The records that readers get of a partition at the end. `aborted`: not for readers of committed data."""
        named = keys or {}
        committed = [ReadRecord(offset, named.get(offset), value) for offset, value in rows]
        hidden = [ReadRecord(offset, named.get(offset), value) for offset, value in aborted]
        everything = sorted([*committed, *hidden], key=lambda row: row.offset)
        end = everything[-1].offset + 1 if everything else start_offset
        self.final.partitions[place] = PartitionEnd(
            start_offset=start_offset,
            high_watermark=end,
            last_stable_offset=end if stable is None else stable,
            committed=committed,
            uncommitted=everything,
            batches=batches,
        )

    def found(self) -> list[str]:
        """The names of the checkers that fire."""
        facts = HistoryIndex(self.history, self.final)
        return [name for name, check in CHECKERS.items() if list(check(facts))]
