"""Reads and writes the small text files of a data directory, in Kafka's formats.

Each file is replaced as a whole (`Disk.write_atomically`).

| file | lines after the version (0) and the count |
|---|---|
| `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint` | `topic partition offset` |
| `leader-epoch-checkpoint` | `epoch start-offset` |

`partition.metadata` has `key: value` lines, `meta.properties` has `key=value` lines. The former has a third line, the
CRC-32C of the first two; Kafka ignores it.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence

from crc32c import crc32c

from semel_storage.disk.disk import Disk

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
TOPIC_ID_HEAD = "version: 0\ntopic_id: "
TOPIC_ID_CHARS = 22
CHECKSUM_HEAD = "\nsemel_crc32c: "
CHECKSUM_CHARS = 8
META_PROPERTIES = "meta.properties"
OFFSET_MAX = 2**63 - 1
ROWS_PER_STEP = 1_000
"""Rows of offsets that are encoded in one turn of an event loop: less than a millisecond."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
"""In the directory of a log that is or was compacted: the end of the last round."""

TopicPartition = tuple[str, int]


class CorruptCheckpoint(Exception):  # noqa: N818 (named after its cause)
    """A checkpoint file is invalid. The message has the file and the line."""


def _rows(disk: Disk, path: str, columns: int) -> list[list[str]]:
    if not disk.exists(path):
        return []
    lines = disk.read_bytes(path).decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise CorruptCheckpoint(f"{path}: expected version 0 and a count; move the file away to start without it")
    rows = [line.split() for line in lines[2:]]
    if not lines[1].strip().isdecimal() or len(rows) != int(lines[1]):
        raise CorruptCheckpoint(f"{path}: {lines[1]!r} entries are announced, {len(rows)} lines follow")
    for number, row in enumerate(rows, start=3):
        if len(row) != columns or not all(cell.lstrip("-").isdecimal() for cell in row[columns - 2 :]):
            raise CorruptCheckpoint(f"{path}: line {number} does not have {columns} columns")
        if int(row[-1]) > OFFSET_MAX:
            raise CorruptCheckpoint(f"{path}: line {number} has {row[-1]}, which is not an offset")
    return rows


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Offsets per partition; empty without a file. Raises CorruptCheckpoint."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in _rows(disk, path, 3)}


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a file with an offset for each partition."""
    return b"".join(encoded_offsets(offsets))


def encoded_offsets(offsets: Mapping[TopicPartition, int]) -> Iterator[bytes]:
    """The bytes of `encode_offsets` in portions of ROWS_PER_STEP rows; of the offsets as they are at the first one."""
    rows = sorted(offsets.items())
    yield f"0\n{len(rows)}\n".encode()
    for start in range(0, len(rows), ROWS_PER_STEP):
        some = rows[start : start + ROWS_PER_STEP]
        yield "".join([f"{topic} {index} {offset}\n" for (topic, index), offset in some]).encode()


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs; empty without a file. Raises CorruptCheckpoint."""
    return [(int(epoch), int(start)) for epoch, start in _rows(disk, path, 2)]


def encode_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    """The bytes of `leader-epoch-checkpoint`."""
    return "".join(["0\n", f"{len(entries)}\n", *(f"{epoch} {start}\n" for epoch, start in entries)]).encode()


def topic_id_text(topic_id: bytes) -> str:
    """16 bytes as Kafka writes a Uuid: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """The topic id in a `partition.metadata`.

    None without a file, and for an incomplete or overwritten file, as a power loss leaves it. Raises CorruptCheckpoint
    for a complete file of an unknown format or with a wrong checksum.
    """
    data = disk.read_bytes(path).rstrip(b"\0\n") if disk.exists(path) else b""
    text = data.decode("utf-8", "replace")
    if len(text) < len(TOPIC_ID_HEAD) + TOPIC_ID_CHARS and (TOPIC_ID_HEAD.startswith(text) or TOPIC_ID_HEAD in text):
        return None
    if not text.startswith("version: "):
        return None
    stated = _stated_checksum(text)
    if stated == "":
        return None
    if stated is not None and stated != _checksum(data[: -len(CHECKSUM_HEAD) - CHECKSUM_CHARS]):
        raise CorruptCheckpoint(
            f"{path} is damaged: it does not match its checksum. If the directory is that of the topic which it is "
            "named after, delete the file, and it is written anew; if not, move the directory away"
        )
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    try:
        topic_id = urlsafe_b64decode(fields.get("topic_id", "") + "==")
    except ValueError:
        topic_id = b""
    if fields.get("version") != "0" or len(topic_id) != 16:
        raise CorruptCheckpoint(f"{path}: expected version 0 and a topic id of 16 bytes")
    return topic_id


def has_checksum(disk: Disk, path: str) -> bool:
    """Whether a valid `partition.metadata` has a checksum; files of Kafka have none."""
    return _stated_checksum(disk.read_bytes(path).rstrip(b"\0\n").decode("utf-8", "replace")) is not None


def _stated_checksum(text: str) -> str | None:
    """The checksum in a `partition.metadata`; None without such a line, "" if the line is incomplete."""
    whole, line = text[: len(TOPIC_ID_HEAD) + TOPIC_ID_CHARS], text[len(TOPIC_ID_HEAD) + TOPIC_ID_CHARS :]
    if not line or not whole.startswith("version: "):
        return None
    if len(line) < len(CHECKSUM_HEAD) + CHECKSUM_CHARS and CHECKSUM_HEAD.startswith(line[: len(CHECKSUM_HEAD)]):
        return ""
    return line[len(CHECKSUM_HEAD) :] if line.startswith(CHECKSUM_HEAD) else None


def _checksum(data: bytes) -> str:
    return f"{crc32c(data):0{CHECKSUM_CHARS}x}"


def write_topic_id(disk: Disk, path: str, topic_id: bytes) -> None:
    """Write the topic id with a checksum. It is durable before the first record of the log counts as durable."""
    data = f"{TOPIC_ID_HEAD}{topic_id_text(topic_id)}".encode()
    disk.write_later(path, data + f"{CHECKSUM_HEAD}{_checksum(data)}".encode())


def read_properties(disk: Disk, path: str) -> dict[str, str]:
    """The `key=value` lines, without comments and blank lines; empty without a file."""
    if not disk.exists(path):
        return {}
    lines = disk.read_bytes(path).decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=")[::2] for line in lines if line.strip() and not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def write_properties(disk: Disk, path: str, properties: Mapping[str, str]) -> None:
    disk.write_atomically(path, "".join(f"{key}={value}\n" for key, value in properties.items()).encode())
