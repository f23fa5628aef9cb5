"""Damages a whole data directory while the broker is down: the store, checkpoints, internal topics and all other files.

The rule of `damaged_log`, seen from a client: the broker refuses to start and names the file, or the other_client reads
its committed records, in order and without others. Missing records were reported, or reads of them fail with an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from broker.members import committed
from broker.wire import Wire, headers_of
from fuzz.fuzzed_broker import DATA, FuzzedBroker
from fuzz.mutations import mutate
from fuzz.other_client import GROUP, TOPIC, committed_values
from semel_broker.cluster.local_store import CorruptStoreError
from semel_broker.config.loading import ConfigError
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.checkpoints import CorruptCheckpoint
from semel_storage.log_directory import WrongDirectory

REFUSALS = (CorruptStoreError, ConfigError, CorruptCheckpoint, WrongDirectory, KafkaError)
REPORTS = (
    "log_damaged",
    "log_tail_cut",
    "stray_partition_set_aside",
    "journal_damaged",
    "log_directory_new",
    "partition_offline",
)
"""Log events that report missing or moved records or offsets to an operator."""
ROUNDS = 6
EARLIEST = -2
INTERNAL = ("__consumer_offsets", "__transaction_state")


class DamagedDirectory:
    """`run` fills a broker, stops it, damages files, starts it again and reads back. It returns the outcome."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.target = FuzzedBroker.open()
        self.notes: list[str] = []
        self._damaged: list[str] = []
        """The damaged files."""
        self._gone: list[str] = []

    def run(self) -> str:
        target, random = self.target, self.random
        target.run(self._run_rounds())
        if is_clean := random.random() < 0.5:
            target.run(target.node.stop())
        else:
            target.run(target.kill())
        self.notes.append("stopped" if is_clean else "killed")
        target.disk.kill()
        for _ in range(random.choice((1, 1, 2))):
            self._damage(random.choice(self._paths()))
        self._gone = [path for path in self._damaged if not (target.disk.exists(path) and target.disk.size(path))]
        target.log.events.clear()
        refusal = ""
        try:
            target.run(target.start())
        except REFUSALS as error:
            refusal = str(error)
        if refusal:
            assert DATA in refusal, self._message(f"a refusal that names no file: {refusal}")
            return "refused"
        outcome = target.run(self._read_back())
        assert not target.log.lines or self._is_reported(), self._message("\n".join(target.log.lines))
        assert not target.loop.errors, self._message("\n".join(target.loop.errors))
        target.run(target.node.stop())
        target.loop.close()
        return outcome

    async def _run_rounds(self) -> None:
        for _ in range(ROUNDS):
            await self.target.other_client.round()
        await self.target.other_client.leave()
        if self.random.random() < 0.5:
            await self.target.pass_time(self.random.choice((5, 100)))

    # --- damage ----------------------------------------------------------------------------------------------

    def _paths(self) -> list[str]:
        """The files to choose from: all, or with equal chance those of the broker itself and of internal topics."""
        paths = [path for path in sorted(self.target.disk._names) if path.startswith(DATA)]
        special = [path for path in paths if path.count("/") == 1 or any(name in path for name in INTERNAL)]
        return self.random.choice((paths, special))

    def _damage(self, path: str) -> None:
        random, disk = self.random, self.target.disk
        old = disk.read_bytes(path)
        self._damaged.append(path)
        match random.randrange(8):
            case 0:
                disk.remove(path)
                self.notes.append(f"{path}: deleted")
            case 1:
                disk.overwrite(path, b"")
                self.notes.append(f"{path}: emptied")
            case 2:
                other = random.choice(self._paths())
                disk.overwrite(path, disk.read_bytes(other))
                self.notes.append(f"{path}: a copy of {other}")
            case 3:
                disk.open(f"{path}.orig")
                disk.overwrite(f"{path}.orig", old)
                self.notes.append(f"{path}.orig: a copy")
            case _:
                new = mutate(old, random)
                disk.overwrite(path, new)
                at = next((at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), len(new))
                self.notes.append(f"{path}: mutated at {at} of {len(old)}")

    # --- reading back ---------------------------------------------------------------------------------------------

    async def _read_back(self) -> str:
        wire = await Wire.connect(self.target.node.port)
        values = await self._committed(wire)
        expected = self.target.other_client.expected
        assert _is_subsequence(values, expected), self._message(f"read {values} of {expected}")
        if len(values) < len(expected):
            assert self._is_reported(), self._message(f"read {values} of {expected}, and no report")
        offset_is_there = await self._offset_is_there(wire, len(expected))
        await wire.close()
        return "exact" if values == expected and offset_is_there else "reported"

    async def _committed(self, wire: Wire) -> list[bytes | None]:
        values: list[bytes | None] = []
        offset = 0
        while True:
            row = await wire.fetch(TOPIC, offset, isolation_level=1, max_wait_ms=0)
            if row.error_code != ErrorCode.NONE:
                self.notes.append(f"fetch at {offset}: error {row.error_code}")
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < row.log_start_offset:
                    offset = row.log_start_offset
                    continue
                self.target.log.events.append("log_damaged")
                return values
            headers = headers_of(row.records)
            if not headers:
                return values
            aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
            try:
                values += committed_values(row.records, aborted, checked=True)
            except KafkaError as error:
                self.notes.append(f"records at {offset}: {error}")
                self.target.log.events.append("log_damaged")  # the reader got an error, which is a report
                return values
            offset = max(header.next_offset for header in headers)

    async def _offset_is_there(self, wire: Wire, expected: int) -> bool:
        try:
            (offset,) = await committed(wire, GROUP, 0, topic=TOPIC)
        except AssertionError:
            return False  # the coordinator refuses
        if offset != expected:
            assert self._is_reported(), self._message(f"offset {offset} of {expected}, and no report")
            return False
        return True

    def _is_reported(self) -> bool:
        """Whether the loss was reported. A log file that is emptied or deleted after a crash counts as reported: it
        looks as if it had never been written."""
        if "killed" in self.notes and any(path.endswith(".log") for path in self._gone):
            return True
        loads = ("transactions_not_loaded", "groups_not_loaded", "partition_offline")
        return any(event in REPORTS for event in self.target.log.events) or any(
            line.startswith(loads) for line in self.target.log.lines
        )

    def _message(self, what: str) -> str:
        return "\n".join([what, *self.notes, *self.target.log.events, *self.target.log.lines])


def _is_subsequence(some: list[bytes | None], of: list[bytes]) -> bool:
    rest: Iterator[bytes | None] = iter(of)
    return all(value in rest for value in some)
