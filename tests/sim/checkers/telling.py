"""Histories by hand, for the tests of checkers: a clock that ticks with every event, and the end as a few lists."""

from __future__ import annotations

from collections.abc import Iterable

from sim.checkers import CHECKERS, Story
from sim.events import NO_TXN, Topic
from sim.final import Batch, Final, PartitionEnd, Row
from sim.history import History, Witness

T0 = ("t", 0)
T1 = ("t", 1)


class Tale:
    """A history about topic "t" (two partitions), with short words for what happens often."""

    def __init__(self, cleanup: str = "") -> None:
        self.clock_ms = 0.0
        self.history = History(self.tick)
        self.history.declare(Topic("t", 2, cleanup))
        self.final = Final()

    def tick(self) -> float:
        self.clock_ms += 1
        return self.clock_ms

    def witness(self, name: str) -> Witness:
        return self.history.witness(name)

    def send(
        self,
        who: Witness,
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
        """A send that is acknowledged, unless it has no offset."""
        op = who.sending(
            topic, partition, value=value, key=key, txn=txn, made_from=made_from, idempotent=idempotent
        )  # fmt: skip
        if offset is not None:
            who.stored(op, partition, offset)
        return op

    def transaction(self, who: Witness, *writes: tuple[str, int, int], end: str = "committed", owner: str = "") -> int:
        """A whole transaction of (value, partition, offset); `end`: committed, aborted, unknown, or open."""
        txn = who.beginning(owner or who.client.partition("#")[0])
        for value, partition, offset in writes:
            self.send(who, value, offset, partition=partition, txn=txn)
        if end in ("committed", "unknown"):
            who.committing(txn)
        if end == "committed":
            who.committed(txn)
        if end == "aborted":
            who.aborted(txn)
        return txn

    def consumer(self, name: str = "reader", *, group: str = "", read_committed: bool = True) -> Witness:
        who = self.witness(name)
        who.consuming(group, read_committed=read_committed)
        return who

    def ends(
        self,
        rows: Iterable[tuple[int, str | None]] = (),
        *,
        aborted: Iterable[tuple[int, str | None]] = (),
        place: tuple[str, int] = T0,
        start_offset: int = 0,
        keys: dict[int, str] | None = None,
        batches: list[Batch] | None = None,
        stable: int | None = None,
    ) -> None:
        """What readers get of a partition at the end; `aborted`: those that readers of committed records do not."""
        named = keys or {}
        committed = [Row(offset, named.get(offset), value) for offset, value in rows]
        hidden = [Row(offset, named.get(offset), value) for offset, value in aborted]
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
        """The names of the checkers that find something."""
        story = Story(self.history, self.final)
        return [name for name, check in CHECKERS.items() if list(check(story))]
