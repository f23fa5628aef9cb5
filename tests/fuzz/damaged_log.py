"""Damages the files of a closed log with known contents, opens it again and judges the result.

The rule: a start either refuses and names the file, or readers get the acknowledged records unchanged. Missing records
were reported. All records before the damage are there. Readers never get other records instead.
"""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
from fuzz.mutations import mutate
from semel_protocol.batch import crc_ok, iterate, read_header
from semel_protocol.errors import KafkaError
from semel_protocol.records import Record, build_batch, decode_batch
from semel_storage.checkpoints import CorruptCheckpoint
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log_directory import LogDirectory, WrongDirectory
from semel_storage.segments.log_config import LogConfig

ROOT = "data"
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300)
REFUSALS = (KafkaError, CorruptCheckpoint, WrongDirectory)
LOSSES = ("log_tail_cut", "log_damaged")
"""Log events that report lost records."""
IDEMPOTENT, COMMITTER, ABORTER = 5, 7, 8
ABORTED_EVERY = 3


class AcknowledgedContents(msgspec.Struct):
    """The acknowledged contents. `values`: offset -> value, None for a marker. `aborted`: (producer id, first offset,
    offset of the marker). `batch_ends`: first offset -> next offset."""

    values: dict[int, bytes | None] = {}
    aborted: list[tuple[int, int, int]] = []
    batch_ends: dict[int, int] = {}
    start_offset: int = 0
    end_offset: int = 0
    recovery_point: int = 0
    last_sequence: int = -1
    is_clean: bool = False


class DamagedLog:
    """`build` makes a random log, `damage` damages its files, `judge` opens it and reads it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = MemoryDisk()
        self.truth = AcknowledgedContents()
        self.events: list[tuple[str, dict[str, object]]] = []
        self.notes: list[str] = []
        self.damaged: dict[str, int] = {}
        """Path -> the first changed byte."""
        self._logs_before: dict[str, bytes] = {}

    # --- building --------------------------------------------------------------------------------------------

    def build(self) -> None:
        random, truth = self.random, self.truth
        logs = self._directory()
        log = logs.open_log("t", 0, CONFIG, now_ms=NOW_MS)
        sequences = {IDEMPOTENT: 0, COMMITTER: 0, ABORTER: 0}
        steps = random.choice((3, 12, 40))
        checkpoint_at = random.randrange(steps + 1)
        for step in range(steps):
            if step == checkpoint_at:
                asyncio.run(self._checkpoint(logs, log))
            epoch = step * 3 // steps
            if step % ABORTED_EVERY == 0 and random.random() < 0.6:
                self._transaction(log, sequences, random.choice((COMMITTER, ABORTER)), epoch)
            else:
                self._append(log, sequences, random.choice((IDEMPOTENT, -1)), epoch)
        asyncio.run(log.durability.sync())
        if random.random() < 0.2:
            log.delete_records_before(random.randrange(log.end_offset))
        truth.start_offset, truth.end_offset = log.start_offset, log.end_offset
        truth.is_clean = random.random() < 0.4
        if truth.is_clean:
            logs.close()
        truth.recovery_point = log.durability.recovery_point
        self.disk.kill()

    def _directory(self) -> LogDirectory:
        def note(event: str, **facts: object) -> None:
            self.events.append((event, facts))

        return LogDirectory.open(self.disk, ROOT, node_id=1, cluster_id="", directory_id="d", event=note)

    @staticmethod
    async def _checkpoint(logs: LogDirectory, log: Log) -> None:
        await log.durability.checkpoint()
        logs.save_checkpoints()

    def _append(
        self, log: Log, sequences: dict[int, int], producer: int, epoch: int, *, is_transactional: bool = False
    ) -> int:
        random, base = self.random, log.end_offset
        count = random.choice((1, 1, 3))
        values = [b"%d:" % (base + n) + b"x" * random.choice((5, 80)) for n in range(count)]
        batch = build_batch(
            [Record(0, NOW_MS + base + n, b"k%d" % n, value) for n, value in enumerate(values)],
            codec=random.choice((0, 0, 4)),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequences[producer] if producer >= 0 else -1,
            is_transactional=is_transactional,
        )
        log.append(batch, header=read_header(batch), leader_epoch=epoch, now_ms=NOW_MS)
        if producer >= 0:
            sequences[producer] += count
        if producer == IDEMPOTENT:
            self.truth.last_sequence = sequences[producer] - 1
        self.truth.values.update((base + n, value) for n, value in enumerate(values))
        self.truth.batch_ends[base] = log.end_offset
        return base

    def _transaction(self, log: Log, sequences: dict[int, int], producer: int, epoch: int) -> None:
        first = self._append(log, sequences, producer, epoch, is_transactional=True)
        self._append(log, sequences, IDEMPOTENT, epoch)
        marker = log.append_marker(producer, 0, producer == COMMITTER, 0, leader_epoch=epoch, now_ms=NOW_MS)
        self.truth.values[marker.base_offset] = None
        self.truth.batch_ends[marker.base_offset] = log.end_offset
        if producer == ABORTER:
            self.truth.aborted.append((producer, first, marker.base_offset))

    # --- damaging --------------------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        return sorted(path for path in self.disk._names if path.startswith(ROOT))

    def damage(self) -> None:
        """Damage one or two files."""
        self._logs_before = {path: self.disk.read_bytes(path) for path in self.paths() if _suffix(path) == ".log"}
        for _ in range(self.random.choice((1, 1, 1, 2))):
            paths = self.paths()
            self._damage(self.random.choice(paths))

    def _damage(self, path: str) -> None:
        random, disk = self.random, self.disk
        old = disk.read_bytes(path)
        match random.randrange(12):
            case 0:
                disk.remove(path)
                self._note_damage(path, 0, "deleted")
            case 1:
                disk.overwrite(path, b"")
                self._note_damage(path, 0, "emptied")
            case 2:
                other = random.choice([other for other in self.paths() if _suffix(other) == _suffix(path)])
                disk.overwrite(path, disk.read_bytes(other))
                self._compare(path, old, f"now a copy of {other}")
            case 3:
                name = random.choice(
                    (f"{ROOT}/t-0/{random.randrange(99):020d}{_suffix(path)}", f"{path}.bak", f"{path}~")
                )
                if not disk.exists(name):
                    disk.open(name)
                    disk.overwrite(name, old)
                    self._note_damage(name, 0, f"a copy of {path}")
            case 4:
                name = random.choice((f"{ROOT}/t-0/lost+found", f"{ROOT}/notes.txt", f"{ROOT}/t-0/x.log.swp"))
                disk.open(name)
                disk.overwrite(name, random.randbytes(50))
                self.notes.append(f"{name}: a file that does not belong there")
            case _:
                disk.overwrite(
                    path, self._with_old_unchecked_fields(path, mutate(old, random, times=random.choice((1, 1, 3))))
                )
                self._compare(path, old, "mutated")

    def _with_old_unchecked_fields(self, path: str, new: bytes) -> bytes:
        """`new` with the old base offsets and leader epochs of batches: no checksum covers them in Kafka's format. Only
        a reader that crosses a batch boundary notices a slightly wrong offset."""
        then = self._logs_before.get(path, b"")
        if len(then) != len(new):
            return new
        out, at = bytearray(new), 0
        for header, _ in iterate(then):
            out[at : at + 8], out[at + 12 : at + 16] = then[at : at + 8], then[at + 12 : at + 16]
            at += header.size
        return bytes(out)

    def _compare(self, path: str, old: bytes, what: str) -> None:
        new = self.disk.read_bytes(path)
        if new != old:
            at = next(
                (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]),
                min(len(old), len(new)),
            )
            self._note_damage(path, at, what)

    def _note_damage(self, path: str, at: int, what: str) -> None:
        self.damaged[path] = min(at, self.damaged.get(path, at))
        self.notes.append(f"{path}: {what} from byte {at} on")

    # --- judging ---------------------------------------------------------------------------------------------

    def judge(self) -> str:
        """Open the log and read it. Asserts the rule. Returns the outcome in a few words."""
        before = self._first_damaged_offset()
        refusal = ""
        try:
            log = self._directory().open_log("t", 0, CONFIG, now_ms=NOW_MS)
        except REFUSALS as error:
            refusal = str(error)
        if refusal:
            assert f"{ROOT}/" in refusal, self._message(f"a refusal that names no file: {refusal}")
            return "refused"
        found, complaint = self._read(log)
        self._judge_records(log, found, complaint, before)
        return complaint or ("exact" if len(found) == self.truth.end_offset - self.truth.start_offset else "less")

    def _first_damaged_offset(self) -> int:
        """The first offset at or behind any damage to log files."""
        at_stake = self.truth.end_offset
        for path, position in self.damaged.items():
            if _suffix(path) == ".log" and path in self._logs_before:
                at_stake = min(at_stake, self._offset_at(path, position))
            elif _suffix(path) == ".log":
                at_stake = min(at_stake, int(path.rpartition("/")[2].partition(".")[0]))
        return at_stake

    def _offset_at(self, path: str, position: int) -> int:
        at = 0
        base = int(path.rpartition("/")[2].partition(".")[0])
        for header, _ in iterate(self._logs_before[path]):
            at += header.size
            if at > position:
                return header.base_offset
            base = header.next_offset
        return base

    def _read(self, log: Log) -> tuple[dict[int, bytes | None], str]:
        """Offset -> value of the records that a consumer with CRC checks gets; the error that ended the read, or ""."""
        found: dict[int, bytes | None] = {}
        offset = log.start_offset
        while offset < min(log.end_offset, self.truth.end_offset):
            try:
                data = log.read(offset, up_to=log.end_offset, bytes_max=self.random.choice((1, 400, 9000)))
            except KafkaError:
                return found, "read refused"
            assert data, self._message(f"nothing to read at {offset}, the log ends at {log.end_offset}")
            next_offset = offset
            try:
                for header, view in iterate(data):
                    if not crc_ok(view, header):
                        return found, "bad CRC"
                    assert header.next_offset > next_offset, self._message(f"{header} at {next_offset}")
                    for record in decode_batch(view, header):
                        if record.offset >= offset:
                            found[record.offset] = None if header.is_control else record.value
                    next_offset = header.next_offset
            except KafkaError:
                return found, "no batch"
            self._judge_aborted(log, offset, next_offset)
            offset = next_offset
        return found, ""

    def _judge_aborted(self, log: Log, start: int, end: int) -> None:
        """If no loss was reported, readers must learn of every aborted transaction."""
        if any(name in LOSSES for name, _ in self.events) or self._is_cut_short():
            return
        listed = [(row.producer_id, row.first_offset, row.last_offset) for row in log.aborted_transactions(start, end)]
        true = [row for row in self.truth.aborted if row[2] >= start and row[1] < end]
        missing = [row for row in true if row not in listed and row[1] >= self.truth.start_offset]
        assert not missing, self._message(
            f"aborted {missing} would be shown as committed in [{start}, {end}): {listed}"
        )

    def _is_cut_short(self) -> bool:
        """Whether the last segment ends early between two batches, above the recovery point. This looks the same as
        batches that were never written."""
        path, then = max(self._logs_before.items())
        now = self.disk.read_bytes(path) if self.disk.exists(path) else b""
        if path not in self.damaged or not then.startswith(now):
            return False
        ends = [0]
        for header, _ in iterate(then):
            ends.append(ends[-1] + header.size)
        return len(now) in ends and self._offset_at(path, len(now)) >= self.truth.recovery_point

    def _judge_records(self, log: Log, found: dict[int, bytes | None], complaint: str, before: int) -> None:
        truth = self.truth
        wrong = {offset: value for offset, value in found.items() if truth.values.get(offset, b"?") != value}
        assert not wrong, self._message(f"wrong records: {wrong}")
        wanted = [offset for offset in range(truth.start_offset, truth.end_offset) if offset not in found]
        is_reported = any(name in LOSSES for name, _ in self.events)
        if not wanted:
            state = log.producers.get(IDEMPOTENT)
            if truth.last_sequence >= 0 and truth.start_offset == 0:
                assert state is not None, self._message("the producer is forgotten")
                assert state.last_sequence == truth.last_sequence, self._message(f"{state}")
            return
        if min(wanted) >= self.truth.recovery_point and self._is_cut_short():
            return
        assert complaint or is_reported, self._message(f"{wanted} are gone without a report")
        assert complaint == "read refused" or min(wanted) >= before, self._message(
            f"{wanted} are gone, damage is at {before}: {complaint}"
        )

    def _message(self, what: str) -> str:
        lines = [what, f"truth: {msgspec.structs.replace(self.truth, values={}, batch_ends={})}", *self.notes]
        return "\n".join([*lines, *(f"{name} {facts}" for name, facts in self.events)])


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return "." + name.rpartition(".")[2] if "." in name[1:] else name
