"""The store of a single broker: one file in its data directory.

The file is a journal of frames: magic, length, CRC-32C, payload. The first frame holds a whole state. Each other frame
holds the transactions that were answered together:

    |"smlJ"| length uint32 | crc32c uint32 | msgpack array of StoreState, WrittenTransaction or Leased |

At most one frame is unsynced: transactions that arrive during a sync share the next frame. So a damaged frame at the
end is a write that a crash tore. It was not answered, and is dropped. A damaged frame with a whole one after it is
damage, and the broker does not start. The first frame is only written by atomic replacement. A clean close leaves a
single frame. If that frame is cut short or damaged later, this is damage and not a torn write.

A session lives as long as the process: no other process uses the store. Keys that a process left with its sessions are
removed when the store is opened again, before the first read.
"""

from __future__ import annotations

import math
import struct
from asyncio import Event, Task, get_running_loop, wait
from collections.abc import Sequence
from typing import Final

import msgspec
from crc32c import crc32c
from semel_storage.disk.disk import Disk, File

from semel_broker.cluster.local_watch import LocalWatch, StoreHistory
from semel_broker.cluster.store import (
    ABSENT,
    CHANGES_MAX,
    NO_LEASE,
    Change,
    Delete,
    Expect,
    Listing,
    Put,
    RemovedKey,
    SessionEndedError,
    StoreClosedError,
    StoreEntry,
    last_of_each_key,
)
from semel_broker.scheduling.waiters import OffsetWaiters

STORE_FILE: Final = "semel.store"
"""Its name in the data directory."""
MAGIC: Final = b"smlJ"
_HEAD: Final = struct.Struct(">4sII")
COMPACT_BYTES_MIN: Final = 256 << 10
COMPACT_FACTOR: Final = 4


class CorruptStoreError(Exception):
    """The store's file is damaged. The message says where, and what to do."""


class StoreState(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    """All entries at one revision: (key, value, revision at which it was written), in key order."""

    revision: int
    entries: list[tuple[str, bytes, int]]


class WrittenTransaction(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """One transaction: keys with their new values. None: the key was removed."""

    revision: int
    changes: list[tuple[str, bytes | None]]


class Leased(msgspec.Struct, frozen=True, array_like=True, tag="leased"):
    """The leases of keys, after the State or Written of the same revision: (key, lease)."""

    revision: int
    leases: list[tuple[str, int]]


Record = StoreState | WrittenTransaction | Leased

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def frame(records: Sequence[Record]) -> bytes:
    """The bytes of one frame."""
    payload = _encoder.encode(records)
    return _HEAD.pack(MAGIC, len(payload), crc32c(payload)) + payload


class StoreReplay(msgspec.Struct):
    """The content of a file: entries, leases by key, last revision; `length` bytes in `frames` frames are whole."""

    entries: dict[str, StoreEntry] = msgspec.field(default_factory=dict)
    leases: dict[str, int] = msgspec.field(default_factory=dict)
    revision: int = 0
    length: int = 0
    frames: int = 0

    def apply(self, record: Record) -> None:
        """Apply one record; live and in replay."""
        if isinstance(record, StoreState):
            self.entries = {key: StoreEntry(key, value, revision) for key, value, revision in record.entries}
            self.leases = {}
        elif isinstance(record, Leased):
            self.leases.update(record.leases)
        else:
            for key, value in record.changes:
                self.leases.pop(key, None)
                if value is None:
                    self.entries.pop(key, None)
                else:
                    self.entries[key] = StoreEntry(key, value, record.revision)
        self.revision = record.revision

    def state(self) -> list[Record]:
        """The whole state, as the records of one frame."""
        entries = StoreState(self.revision, [(e.key, e.value, e.revision) for _, e in sorted(self.entries.items())])
        return [entries, Leased(self.revision, sorted(self.leases.items()))] if self.leases else [entries]


def replay(data: bytes, path: str) -> StoreReplay:
    """Read a journal from its bytes. A torn last frame is left out of `length`; damage raises CorruptStoreError."""
    done = StoreReplay()
    while done.length < len(data):
        payload = _payload(data, done.length)
        if payload is None:
            if done.frames == 0 or _whole_frame_after(data, done.length + 1):
                raise _damaged(path, done, len(data))
            break
        _apply_frame(done, payload, path)
        done.length += _HEAD.size + len(payload)
        done.frames += 1
    return done


def _damaged(path: str, done: StoreReplay, size: int) -> CorruptStoreError:
    follow = ", and undamaged records follow" if done.frames else ""
    return CorruptStoreError(
        f"{path} is damaged at byte {done.length} of {size}: the record there does not match its checksum{follow}. "
        "The file holds this broker's topics and settings: restore it from a copy of the data directory. "
        "The logs are not affected"
    )


def _apply_frame(done: StoreReplay, payload: bytes, path: str) -> None:
    try:
        records = _decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptStoreError(
            f"{path}: the record at byte {done.length} has a format that this version of semel does not know: {error}; "
            "start the version of semel that wrote the file"
        ) from None
    for record in records:
        follows = record.revision - done.revision == (1 if isinstance(record, WrittenTransaction) else 0)
        if isinstance(record, StoreState):
            follows = done.frames == 0
        if not follows or (done.frames == 0 and isinstance(record, WrittenTransaction)):
            raise CorruptStoreError(
                f"{path}: transaction {record.revision} at byte {done.length} does not follow {done.revision}; "
                "restore the file from a copy of the data directory"
            )
        done.apply(record)


def _payload(data: bytes, at: int) -> bytes | None:
    """The payload of the frame at `at`, or None when there is no whole, undamaged one."""
    if at + _HEAD.size > len(data):
        return None
    magic, length, checksum = _HEAD.unpack_from(data, at)
    start = at + _HEAD.size
    if magic != MAGIC or not 0 < length <= len(data) - start:  # a torn head may be all zeros
        return None
    payload = data[start : start + length]
    return payload if crc32c(payload) == checksum else None


def _whole_frame_after(data: bytes, at: int) -> bool:
    while (at := data.find(MAGIC, at)) >= 0:
        if _payload(data, at) is not None:
            return True
        at += 1
    return False


class LocalSession:
    """`Session` of the only process that uses the store: it ends when it is closed, or with the process."""

    deadline: Final = math.inf

    def __init__(self, store: LocalStore, lease: int) -> None:
        self.lease = lease
        self._store = store
        self._ended = Event()

    @property
    def has_ended(self) -> bool:
        """See `Session`."""
        return self._ended.is_set()

    async def ended(self) -> None:
        """See `Session`."""
        await self._ended.wait()

    async def close(self) -> None:
        """See `Session`."""
        if not self._ended.is_set():
            self._ended.set()
            await self._store.end_lease(self.lease)


class LocalStore:
    """`Store` over one file. Later calls see a change at once. `transact` returns once its change is durable."""

    def __init__(self, disk: Disk, path: str, state: StoreReplay, file: File) -> None:
        self._disk = disk
        self._path = path
        self._state = state
        self._file = file
        self._compacted_bytes = file.size()
        self._pending: list[Record] = []
        self._waiters = OffsetWaiters()
        self._history = StoreHistory(state.revision)
        self._leases = 0  # granted since the start
        self._open_leases: dict[int, None] = {}
        self._flushing: Task[None] | None = None

    @classmethod
    def open(cls, disk: Disk, path: str) -> LocalStore:
        """Open the store, or create an empty one, without the keys of former sessions. Raises CorruptStoreError.

        A file that is not one whole state is rewritten as one. That cuts a torn tail, and makes durable what a killed
        process may have left in the kernel's cache only. The file has credentials of users: it is written private.
        """
        exists = disk.exists(path)
        data = disk.read_bytes(path) if exists else b""
        state = replay(data, path)
        if exists and state.frames == 0:
            raise _damaged(path, state, 0)
        orphans = sorted(state.leases)
        if orphans:
            state.apply(WrittenTransaction(state.revision + 1, [(key, None) for key in orphans]))
        if state.frames != 1 or state.length != len(data) or orphans:
            disk.write_atomically(path, frame(state.state()), private=True)
        return cls(disk, path, state, disk.open(path))

    async def get(self, key: str) -> StoreEntry | None:
        """The entry of `key`, or None."""
        self._check_open()
        entry = self._state.entries.get(key)
        await self._durable(self._state.revision)
        return entry

    async def list(self, prefix: str) -> Listing:
        """All entries whose key starts with `prefix`, in key order."""
        self._check_open()
        found = tuple(entry for key, entry in sorted(self._state.entries.items()) if key.startswith(prefix))
        revision = self._state.revision
        await self._durable(revision)
        return Listing(found, revision)

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """Apply all of `changes` if all of `expects` hold; see `Store`."""
        self._check_open()
        assert len(expects) <= CHANGES_MAX, f"{len(expects)} expectations in one transaction, {CHANGES_MAX} at most"
        changes = last_of_each_key(changes)
        entries = self._state.entries
        for change in changes:
            if isinstance(change, Put) and change.lease not in (NO_LEASE, *self._open_leases):
                raise SessionEndedError(f"{change.key!r}: its session has ended; open a new one")
        for expect in expects:
            entry = entries.get(expect.key)
            if (ABSENT if entry is None else entry.revision) != expect.revision:
                await self._durable(self._state.revision)  # a crash must not undo the state that this answer depends on
                return None
        return await self._write([change for change in changes if isinstance(change, Put) or change.key in entries])

    def watch(self, prefix: str, revision: int) -> LocalWatch:
        """The changes under `prefix` after `revision`; see `Store`."""
        self._check_open()
        return LocalWatch(self._history, prefix, revision)

    async def open_session(self, ttl_ms: int) -> LocalSession:
        """A session that ends with `close` or with this process; `ttl_ms` has no effect here."""
        self._check_open()
        self._leases += 1
        self._open_leases[self._leases] = None
        return LocalSession(self, self._leases)

    async def end_lease(self, lease: int) -> None:
        """Remove the keys that were written with the lease. Called by `LocalSession`."""
        self._check_open()
        del self._open_leases[lease]
        await self._write([Delete(key) for key, each in sorted(self._state.leases.items()) if each == lease])

    async def close(self) -> None:
        """Wait for the writes under way, rewrite the file as one frame, and close it. Watches raise
        StoreClosedError.
        """
        if self._history.is_closed:
            return
        self._history.close()
        await self._durable(self._state.revision)
        if self._flushing is not None:
            await wait((self._flushing,))  # it may be replacing the file
        if self._file.size() != self._compacted_bytes:
            await self._compact()
        self._file.close()

    def _check_open(self) -> None:
        if self._history.is_closed:
            raise StoreClosedError(f"{self._path}: the store was closed")

    async def _write(self, changes: Sequence[Change]) -> int:
        """Apply the changes and wait until they are durable. Each change must have an effect."""
        if not changes:
            revision = self._state.revision
            await self._durable(revision)
            return revision
        written = WrittenTransaction(
            self._state.revision + 1, [(c.key, c.value if isinstance(c, Put) else None) for c in changes]
        )
        leases = [(c.key, c.lease) for c in changes if isinstance(c, Put) and c.lease != NO_LEASE]
        records: list[Record] = [written, Leased(written.revision, leases)] if leases else [written]
        for record in records:
            self._state.apply(record)
        self._pending += records
        seen = (self._state.entries.get(c.key) or RemovedKey(c.key, written.revision) for c in changes)
        self._history.add(tuple(seen), written.revision)
        await self._durable(written.revision)
        return written.revision

    async def _durable(self, revision: int) -> None:
        if self._history.durable_revision >= revision:
            return
        loop = get_running_loop()
        waiting = self._waiters.wait_for(revision, loop)
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        await waiting

    async def _flush(self) -> None:
        """Write and sync pending records, one frame at a time, until there are none."""
        try:
            while self._pending:
                pending, self._pending = self._pending, []
                self._file.append(frame(pending))
                await self._file.sync()
                self._reached(pending[-1].revision)
                if self._file.size() > max(COMPACT_BYTES_MIN, COMPACT_FACTOR * self._compacted_bytes):
                    await self._compact()
        except Exception as error:  # a bug of semel: a disk that fails ends the process
            self._waiters.fail(error)
            raise
        finally:
            self._flushing = None

    async def _compact(self) -> None:
        """Replace the journal by its state, which includes the pending records. Later ones follow it."""
        self._pending = []
        revision = self._state.revision
        await self._disk.write_aside(self._path, frame(self._state.state()), private=True)
        self._file.close()
        self._file = self._disk.open(self._path)
        self._compacted_bytes = self._file.size()
        self._reached(revision)

    def _reached(self, revision: int) -> None:
        self._history.reached(revision)
        self._waiters.reached(revision)
