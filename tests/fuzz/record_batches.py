"""Makes malformed record batches. Most have a right CRC, so that they pass the first check."""

from __future__ import annotations

from functools import cache
from random import Random

import msgspec
from fuzz.mutations import mutate
from semel_protocol.batch import HEADER, HEADER_BYTES, PREFIX_BYTES, crc_of
from semel_protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.records import Record, build_batch
from semel_protocol.varint import varint

CODECS = (NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD)
BOMB_BYTES = 200 << 20
CROWD_COUNTS = (1_000, 90_000, 150_000)
NOW_MS = 1_700_000_000_000
BOMB_MS = NOW_MS + 2_000_000
EXTREMES = {"b": 8, "h": 16, "i": 32, "I": 32, "q": 64}
FIELDS = HEADER.format.lstrip(">")
CRC_FIELD, LENGTH_FIELD = 4, 1
MAGIC_0_MESSAGE = bytes.fromhex("000000000000000000000012f2b2ba4d0000ffffffff0000000478787878")
MAGIC_1_MESSAGE = bytes.fromhex("000000000000000000000022d5a7d2c201000000018bcfe56800ffffffff0000000878787878787878")


class ProducerFields(msgspec.Struct, frozen=True):
    """The producer fields of a batch; -1: none."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False


def plain(random: Random, producer: ProducerFields) -> bytes:
    """A valid batch."""
    count = random.choice((1, 1, 2, 5, 40))
    records = []
    for row in range(count):
        key = random.choice((None, b"", b"k%d" % random.randrange(4)))
        value = random.choice((None, b"", b"v", random.randbytes(random.choice((1, 30, 200)))))
        headers = random.choice(((), (), (("h", b"x"), ("", None))))
        records.append(Record(row, NOW_MS + row * random.choice((0, 1, 1000, -7)), key, value, headers))
    return build_batch(
        records,
        codec=random.choice(CODECS),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
        is_transactional=producer.is_transactional,
    )


def with_good_crc(batch: bytes, *, with_length: bool = True) -> bytes:
    """The batch with the right length and CRC."""
    if len(batch) < HEADER_BYTES:
        return batch
    out = bytearray(batch)
    if with_length:
        out[8:12] = (len(out) - PREFIX_BYTES).to_bytes(4, "big")
    out[17:21] = crc_of(out, len(out)).to_bytes(4, "big")
    return bytes(out)


def with_an_extreme_field(batch: bytes, random: Random) -> bytes:
    """One header field at an extreme value, with a right CRC (unless the field is the CRC)."""
    fields = list(HEADER.unpack_from(batch))
    place = random.randrange(len(fields))
    bits = EXTREMES[FIELDS[place]]
    top = 1 << (bits - 1)
    numbers = (0, 1, -1, -2, 2, top - 1, -top, fields[place] ^ 1 << random.randrange(bits - 1), fields[place] + 1)
    number = random.choice(numbers)
    low, high = (0, (1 << bits) - 1) if FIELDS[place] == "I" else (-top, top - 1)
    fields[place] = min(max(number, low), high)
    changed = HEADER.pack(*fields) + batch[HEADER_BYTES:]
    return changed if place == CRC_FIELD else with_good_crc(changed, with_length=place != LENGTH_FIELD)


def with_mutated_records(batch: bytes, random: Random) -> bytes:
    """Mutated records (or compressed data) under a right CRC."""
    return with_good_crc(batch[:HEADER_BYTES] + mutate(batch[HEADER_BYTES:], random, times=random.choice((1, 2, 4))))


@cache
def bomb(codec: int) -> bytes:
    """A small batch of one record whose compressed data expands to `BOMB_BYTES`."""
    blob = compress(codec, bytes(BOMB_BYTES))
    batch = build_batch([Record(0, BOMB_MS, None, b"x")], codec=codec)
    return with_good_crc(batch[:HEADER_BYTES] + blob)


@cache
def many_records(count: int, codec: int = ZSTD, *, timestamp_ms: int = NOW_MS, key: bytes = b"k") -> bytes:
    """A valid batch of so many very small records."""
    rows = bytearray()
    tail = varint(len(key)) + key + b"\x01\x00"
    for delta in range(count):
        row = b"\x00\x00" + varint(delta) + tail
        rows += varint(len(row)) + row
    fields = list(HEADER.unpack_from(build_batch([Record(0, timestamp_ms, None, b"x")], codec=codec)))
    fields[6], fields[12] = count - 1, count
    return with_good_crc(HEADER.pack(*fields) + compress(codec, bytes(rows)))


def marker(random: Random, producer: ProducerFields) -> bytes:
    """A control batch, which clients must not produce."""
    kind = random.choice((ControlType.COMMIT, ControlType.ABORT))
    return build_marker(
        EndTxnMarker(kind, random.choice((0, 1, 2**31 - 1))),
        producer_id=producer.producer_id,
        producer_epoch=max(producer.epoch, 0),
        timestamp_ms=NOW_MS,
    )


def old_magic(random: Random) -> bytes:
    """A message set of magic 0 or 1, or a batch with a wrong magic byte."""
    if random.random() < 0.5:
        return random.choice((MAGIC_0_MESSAGE, MAGIC_1_MESSAGE))
    out = bytearray(plain(random, ProducerFields()))
    out[16] = random.choice((0, 1, 3, 127, 255))
    return bytes(out)


def any_batch(random: Random, producer: ProducerFields, *, bombs: bool = False) -> bytes:
    """A random batch of one of these kinds."""
    batch = plain(random, producer)
    match random.randrange(12 if bombs else 11):
        case 0 | 1:
            return batch
        case 2 | 3 | 4:
            return with_an_extreme_field(batch, random)
        case 5 | 6:
            return with_mutated_records(batch, random)
        case 7:
            return marker(random, producer)
        case 8:
            return old_magic(random)
        case 9:
            return mutate(batch, random)
        case 10:
            return batch + random.choice((batch, b"\0" * 30, plain(random, ProducerFields())))
        case _:
            return random.choice((bomb(random.choice((GZIP, LZ4, ZSTD))), many_records(random.choice(CROWD_COUNTS))))
