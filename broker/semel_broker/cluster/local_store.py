"""The store of a single broker: one file in its data directory.

The file is a journal of frames - magic, length, CRC-32C, payload - of which the first holds a whole state and every
other one the transactions that were answered together:

    |"smlJ"| length uint32 | crc32c uint32 | msgpack array of State or Written |

At most one frame is ever unsynced: what arrives during a sync shares the next frame. So a damaged frame at the end is a
write that a crash tore, which nobody was told of, and is dropped; a damaged frame with a whole one after it is
damage, and the broker does not start on it. The first frame is only ever written by atomic replacement.
"""

from __future__ import annotations

import struct
from asyncio import Task, get_running_loop
from collections.abc import Sequence
from typing import Final

import msgspec
from crc32c import crc32c
from semel_storage.disk import Disk, File

from semel_broker.cluster.store import ABSENT, Change, Entry, Expect, Listing, Put
from semel_broker.waiters import OffsetWaiters

MAGIC: Final = b"smlJ"
_HEAD: Final = struct.Struct(">4sII")
COMPACT_BYTES_MIN: Final = 256 << 10
COMPACT_FACTOR: Final = 4


class CorruptStoreError(Exception):
    """The store's file is damaged; says where, and what to do."""


class State(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    """Every entry as of one revision: (key, value, revision it was written at), in key order."""

    revision: int
    entries: list[tuple[str, bytes, int]]


class Written(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """One transaction: keys with their new values, None for a removed one."""

    revision: int
    changes: list[tuple[str, bytes | None]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[State | Written])


def frame(records: Sequence[State | Written]) -> bytes:
    """The bytes of one frame."""
    payload = _encoder.encode(records)
    return _HEAD.pack(MAGIC, len(payload), crc32c(payload)) + payload


class Replay(msgspec.Struct):
    """What a file says: the entries, the last revision, how many bytes of it are whole, and in how many frames."""

    entries: dict[str, Entry] = msgspec.field(default_factory=dict)
    revision: int = 0
    length: int = 0
    frames: int = 0

    def apply(self, record: State | Written) -> None:
        """One step, live and in replay alike."""
        if isinstance(record, State):
            self.entries = {key: Entry(key, value, revision) for key, value, revision in record.entries}
        else:
            for key, value in record.changes:
                if value is None:
                    self.entries.pop(key, None)
                else:
                    self.entries[key] = Entry(key, value, record.revision)
        self.revision = record.revision

    def state(self) -> State:
        """The entries as one record."""
        return State(self.revision, [(e.key, e.value, e.revision) for _, e in sorted(self.entries.items())])


def replay(data: bytes, path: str) -> Replay:
    """Read a journal from its bytes. A torn last frame is left out of `length`; damage raises CorruptStoreError."""
    done = Replay()
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


def _damaged(path: str, done: Replay, size: int) -> CorruptStoreError:
    follow = " although whole ones follow" if done.frames else ""
    return CorruptStoreError(
        f"{path} is damaged at byte {done.length} of {size}: the record there does not match its checksum{follow}. "
        "It holds this broker's topics and settings: restore it from a copy of the data directory. "
        "The logs themselves are not concerned"
    )


def _apply_frame(done: Replay, payload: bytes, path: str) -> None:
    try:
        records = _decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptStoreError(
            f"{path}: the record at byte {done.length} was written by another version: {error}"
        ) from None
    for record in records:
        expected = record.revision if isinstance(record, State) else done.revision + 1
        if record.revision != expected or isinstance(record, State) != (done.frames == 0):
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
    if magic != MAGIC or not 0 < length <= len(data) - start:  # zeros are what a torn head leaves
        return None
    payload = data[start : start + length]
    return payload if crc32c(payload) == checksum else None


def _whole_frame_after(data: bytes, at: int) -> bool:
    while (at := data.find(MAGIC, at)) >= 0:
        if _payload(data, at) is not None:
            return True
        at += 1
    return False


class LocalStore:
    """`Store` over one file. Changes are seen by later calls at once, and answered once they are durable."""

    def __init__(self, disk: Disk, path: str, state: Replay, file: File) -> None:
        self._disk = disk
        self._path = path
        self._state = state
        self._file = file
        self._compacted_bytes = file.size()
        self._pending: list[Written] = []
        self._durable_revision = state.revision
        self._waiters = OffsetWaiters()
        self._flushing: Task[None] | None = None

    @classmethod
    def open(cls, disk: Disk, path: str) -> LocalStore:
        """Open the store, or begin an empty one. Raises CorruptStoreError.

        Unless the file is one whole state it is rewritten as one, which cuts a torn tail and makes durable what a
        killed process may have left in the kernel's cache alone.
        """
        exists = disk.exists(path)
        data = disk.read_bytes(path) if exists else b""
        state = replay(data, path)
        if exists and state.frames == 0:
            raise _damaged(path, state, 0)
        if state.frames != 1 or state.length != len(data):
            disk.write_atomically(path, frame([state.state()]))
        return cls(disk, path, state, disk.open(path))

    async def get(self, key: str) -> Entry | None:
        """The entry of `key`, or None."""
        entry = self._state.entries.get(key)
        await self._durable(self._state.revision)
        return entry

    async def list(self, prefix: str) -> Listing:
        """All entries whose key starts with `prefix`, in key order."""
        found = tuple(entry for key, entry in sorted(self._state.entries.items()) if key.startswith(prefix))
        revision = self._state.revision
        await self._durable(revision)
        return Listing(found, revision)

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """Apply all of `changes` if all of `expects` hold; the new revision, or None if one does not hold."""
        entries = self._state.entries
        for expect in expects:
            entry = entries.get(expect.key)
            if (ABSENT if entry is None else entry.revision) != expect.revision:
                await self._durable(self._state.revision)  # what we answer by must not be undone by a crash
                return None
        written = Written(self._state.revision + 1, [(c.key, c.value if isinstance(c, Put) else None) for c in changes])
        self._state.apply(written)
        self._pending.append(written)
        await self._durable(written.revision)
        return written.revision

    async def close(self) -> None:
        """Wait for what is under way and close the file."""
        await self._durable(self._state.revision)
        self._file.close()

    async def _durable(self, revision: int) -> None:
        if self._durable_revision >= revision:
            return
        loop = get_running_loop()
        waiting = self._waiters.wait_for(revision, loop)
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        await waiting

    async def _flush(self) -> None:
        """Write and sync what is pending, one frame at a time, until nothing is."""
        try:
            while self._pending:
                pending, self._pending = self._pending, []
                self._file.append(frame(pending))
                await self._file.sync()
                self._reached(pending[-1].revision)
                if self._file.size() > max(COMPACT_BYTES_MIN, COMPACT_FACTOR * self._compacted_bytes):
                    self._compact()
        except Exception as error:  # a bug of ours: a disk that fails ends the process
            self._waiters.fail(error)
            raise
        finally:
            self._flushing = None

    def _compact(self) -> None:
        """Replace the journal by the state it adds up to, which covers what is pending too."""
        self._pending = []
        self._disk.write_atomically(self._path, frame([self._state.state()]))
        self._file.close()
        self._file = self._disk.open(self._path)
        self._compacted_bytes = self._file.size()
        self._reached(self._state.revision)

    def _reached(self, revision: int) -> None:
        self._durable_revision = revision
        self._waiters.reached(revision)
