"""Flips bits in cold segments at the end of a run. Readers must then get the same records as before, or an error.

On a single broker a record with a flipped bit is lost, and perhaps also the later records of its segment. A reader must
never get another record in its place, and must still get all other records. This check follows the judging of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from semel import Consumer, TopicPartition
from semel.errors import CorruptRecordException
from semel_broker.node import Node
from semel_protocol.batch import HEADER_BYTES
from semel_storage.segments.segment import Segment

from sim.checkers import Anomaly
from sim.checkers.anomaly import few
from sim.client import SimEdge
from sim.events import Place
from sim.final import Final
from sim.host import Host

GUARDED_FROM = 21
"""The position in a batch from which its CRC covers the bytes."""
POLL_MS = 500
QUIET_POLLS_MAX = 60
assert GUARDED_FROM < HEADER_BYTES


class BitRot:
    """Flips `bits` bits in `places`, partitions that keep all records. `main` reads again, then `found` compares."""

    def __init__(self, node: Node, host: Host, final: Final, places: list[Place], address: str, bits: int) -> None:
        self.final, self.address = final, address
        self.hit: dict[Place, dict[int, None]] = {}
        self.errors = 0
        self.before: dict[str, bytes] = {}
        """The contents of the files before the flips, by path."""
        self._read: dict[Place, dict[int, tuple[str | None, str | None]]] = {}
        self._unread: list[str] = []
        rng = host.world.random("rot")
        cold = [
            (place, segment)
            for place in places
            for segment in node.broker.topics.partition(*place).open().segments[:-1]
            if segment.size
        ]
        for _ in range(bits if cold else 0):
            self._flip(host, rng, *rng.choice(cold))

    def _flip(self, host: Host, rng: Random, place: Place, segment: Segment) -> None:
        position, header, _ = rng.choice(list(segment.scan()))
        path = segment.file.path
        self.before.setdefault(path, host.disk.read_bytes(path))
        host.disk.rot(path, position + rng.randrange(GUARDED_FROM, header.size))
        host.world.count("came/bits rotten in cold segments")
        # A search for a later offset of this segment reads this batch's header.
        for offset in range(header.base_offset, segment.next_offset):
            self.hit.setdefault(place, {})[offset] = None

    async def main(self, host: Host) -> None:
        """Read every partition with a flipped bit from its start to its end."""
        settings: dict[str, Any] = {"bootstrap_servers": self.address, "edge": SimEdge(host)}
        for place in self.hit:
            async with Consumer(auto_offset_reset="none", **settings) as consumer:
                await self._read_again(consumer, TopicPartition(*place))

    async def _read_again(self, consumer: Consumer, place: TopicPartition) -> None:
        known = [row.offset for row in self.final.partitions[place].uncommitted]
        rows = self._read[place] = {}
        consumer.assign([place])
        consumer.seek(place, known[0] if known else 0)
        quiet = 0
        while known and (at := await consumer.position(place)) <= known[-1] and quiet < QUIET_POLLS_MAX:
            try:
                polled = await consumer.getmany(timeout_ms=POLL_MS)
            except CorruptRecordException:
                self.errors += 1
                consumer.seek(place, next((offset for offset in known if offset > at), known[-1] + 1))
                continue
            quiet = 0 if polled else quiet + 1
            for record in polled.get(place, ()):
                rows[record.offset] = _text(record.key), _text(record.value)
        if quiet >= QUIET_POLLS_MAX:
            self._unread.append(f"reading {place[0]}-{place[1]} from {at} on returns neither records nor an error")

    def found(self) -> Iterator[Anomaly]:
        """Records that differ from before, and records that cannot be read although no flipped bit is near."""
        wrong = list(self._unread)
        for place, hit in self.hit.items():
            rows = dict(self._read.get(place, {}))
            for row in self.final.partitions[place].uncommitted:
                where = f"{place[0]}-{place[1]}@{row.offset}"
                if row.offset not in rows:
                    if row.offset not in hit:
                        wrong.append(f"{where} was {row.value!r}, and cannot be read, although no flipped bit is near")
                elif rows.pop(row.offset) != (row.key, row.value):
                    wrong.append(f"{where} was {row.value!r}, and is now read differently")
            wrong += [f"{place[0]}-{place[1]}@{offset} did not exist, and is now read" for offset in rows]
        if wrong:
            yield Anomaly("rotten-read", few(wrong))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
