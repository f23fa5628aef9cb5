"""A client with valid requests beside the fuzzed connections: checks that its records and offsets are exact."""

from __future__ import annotations

from typing import Any

from broker.members import WireMember, committed
from broker.transactional import TransactionalProducer
from broker.wire import Wire, headers_of
from semel_protocol.batch import CorruptBatch, crc_ok, iterate
from semel_protocol.records import decode_batch

TOPIC = "other_client"
GROUP = "bystanders"
PER_ROUND = 2


class OtherClient:
    """Each round has a committed transaction, an aborted one, a read of all new records and an offset commit."""

    def __init__(self) -> None:
        self.expected: list[bytes] = []
        self._rounds = 0
        self._position = 0
        self._wire: Wire | None = None
        self._producer: TransactionalProducer | None = None

    async def arrive(self, port: int, *, create: bool = False) -> None:
        """Connect, and start a new instance of the transactional producer."""
        self._wire = await Wire.connect(port)
        if create:
            await self._wire.create_topic(TOPIC, segment_bytes="5000")
        self._producer = await TransactionalProducer(self._wire, name="other_client").init()

    async def leave(self) -> None:
        assert self._wire is not None
        await self._wire.close()

    async def round(self) -> None:
        assert self._wire is not None
        assert self._producer is not None
        self._rounds += 1
        values = [b"%d.%d" % (self._rounds, n) for n in range(PER_ROUND)]
        row = await self._producer.produce(TOPIC, *values)
        assert row.error_code == 0, row
        assert await self._producer.end() == 0
        row = await self._producer.produce(TOPIC, b"aborted in %d" % self._rounds)
        assert row.error_code == 0, row
        assert await self._producer.end(commit=False) == 0
        self.expected += values
        await self._read(values)
        codes = await WireMember(self._wire, GROUP, topics=(TOPIC,)).commit({0: len(self.expected)}, topic=TOPIC)
        assert codes == [0], codes

    async def check_all(self) -> None:
        """Check that all committed records are there once and in order, and check the committed offset."""
        assert self._wire is not None
        self._position = 0
        await self._read(self.expected)
        offsets = await committed(self._wire, GROUP, 0, topic=TOPIC)
        assert offsets == [len(self.expected)], offsets

    async def _read(self, expected: list[bytes]) -> None:
        """Read committed records from the last position to the end, and assert that they are the expected ones."""
        assert self._wire is not None
        found: list[bytes | None] = []
        before = -1
        while before != self._position:
            before = self._position
            row = await self._wire.fetch(TOPIC, self._position, isolation_level=1, max_wait_ms=0)
            assert row.error_code == 0, row
            aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
            for header in headers_of(row.records):
                assert header.base_offset >= self._position, (header, self._position)
            found += committed_values(row.records, aborted)
            self._position = max([self._position, *(header.next_offset for header in headers_of(row.records))])
        assert found == expected, (found, expected)


def committed_values(records: Any, aborted: list[tuple[int, int]], *, checked: bool = False) -> list[bytes | None]:
    """The values of committed records. `aborted`: the aborted transactions (first offset, producer id). With `checked`,
    raises CorruptBatch for a wrong CRC."""
    values: list[bytes | None] = []
    open_aborted: dict[int, None] = {}
    for header, view in iterate(records or b""):
        if checked and not crc_ok(view, header):
            raise CorruptBatch("the CRC does not hold")
        while aborted and aborted[0][0] <= header.base_offset:
            open_aborted[aborted.pop(0)[1]] = None
        if header.is_control:
            open_aborted.pop(header.producer_id, None)
        elif header.producer_id not in open_aborted:
            values += [record.value for record in decode_batch(view, header)]
    return values
