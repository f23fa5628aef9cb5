"""Changes the files of a stopped broker: damages them, or sets a transactional id to another epoch."""

from __future__ import annotations

from pathlib import Path

import msgspec
from semel_broker.txn.model.records import metadata_of, row_of
from semel_protocol.batch import iterate, stamp
from semel_protocol.records import Record, build_batch, decode_batch
from semel_storage import checkpoints
from semel_storage.internal_topics import (
    TRANSACTION_LOG_KEY,
    TRANSACTION_STATE,
    TransactionLogKey,
    encode_versioned,
)

AT_ROOT = {"recovery-point": checkpoints.RECOVERY_POINT, "log-start": checkpoints.LOG_START_OFFSET}
FLIPPED = 0xFF


def file_of(data_dir: Path, topic: str, partition: int, kind: str) -> Path:
    """The newest file of a kind (`log`, `index`, ..., `recovery-point`) of one partition. Raises FileNotFoundError."""
    if kind in AT_ROOT:
        return data_dir / AT_ROOT[kind]
    directory = data_dir / f"{topic}-{partition}"
    if kind == checkpoints.LEADER_EPOCH:
        return directory / kind
    found = sorted(directory.glob(f"*.{kind}"))
    if not found:
        raise FileNotFoundError(f"{directory} has no .{kind}: {sorted(path.name for path in directory.iterdir())}")
    return found[-1]


def damage(path: Path, how: str, number: int = 0) -> None:
    """Damage a file. `how`: `delete` or `empty` it; `truncate` removes `number` bytes at its end, `append` adds them,
    `flip` inverts the byte at that position; `cut` removes the last `number` batches of a log, as a power loss removes
    unsynced batches.
    """
    data = bytearray(path.read_bytes())
    match how:
        case "delete":
            path.unlink()
            return
        case "empty":
            data.clear()
        case "truncate":
            del data[max(0, len(data) - number) :]
        case "cut":
            starts, at = [], 0
            for header, _ in iterate(bytes(data)):
                starts.append(at)
                at += header.size
            del data[starts[-number] :]
        case "append":
            data += bytes((7 * i + 1) & 0xFF for i in range(number))
        case "flip":
            if not data:
                raise ValueError(f"{path} is empty: there is nothing to flip")
            data[number % len(data)] ^= FLIPPED
        case _:
            raise ValueError(f"{how!r} is not a kind of damage; write delete, empty, truncate, cut, append or flip")
    path.write_bytes(data)


def forge_epoch(data_dir: Path, transactional_id: str, epoch: int) -> None:
    """Append a record to the log of a transactional id that sets its producer epoch to `epoch`."""
    key, journal = encode_versioned(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_LOG_KEY), None
    newest, end_offset = b"", 0
    for path in sorted(data_dir.glob(f"{TRANSACTION_STATE}-*/*.log")):
        for header, batch in iterate(path.read_bytes()):
            found = [record.value for record in decode_batch(batch, header) if record.key == key]
            if found:
                journal, newest = path, found[-1] or b""
            if path == journal:
                end_offset = header.next_offset
    if journal is None or not newest:
        raise ValueError(f"{data_dir} knows nothing of {transactional_id}")
    forged = msgspec.structs.replace(
        metadata_of(transactional_id, newest), producer_epoch=epoch, last_producer_epoch=-1
    )
    added = bytearray(build_batch([Record(0, forged.last_update_ms, *row_of(forged))]))
    stamp(added, end_offset, 0)
    with journal.open("ab") as file:
        file.write(added)
