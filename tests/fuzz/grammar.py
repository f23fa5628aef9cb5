"""Makes messages from their declarations: valid ones, and malformed ones.

All random choices come from one `Random`: a seeded one, hypothesis' own (which shrinks), or one over bytes (guided).
`wildness` is the chance that a place is malformed: null where it is not allowed, a wrong length or count, text that is
not UTF-8, tagged fields that are unknown, unordered or not ended. At 0.0 every message decodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from semel_protocol.api import Api
from semel_protocol.fields import Array, Field, Kind, fields_of
from semel_protocol.primitives import uvarint

BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
COUNTS = (0, 1, 1, 1, 2, 3)
WRONG_LENGTHS = (-2, -1, 0, 1, 0x7F, 0x80, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE)
TEXTS = ("", "x", "..", ".", "a/b", "a" * 249, "a" * 300, "\0", "ünï", "𝄞" * 9, "__consumer_offsets", "a b", "%s{}")
NOT_UTF_8 = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"ok\xfe")
DEPTH_MAX = 8
DIFFERENT = 50
"""The number of different elements of a large array. It repeats them."""
SWOLLEN_BYTES_MAX = 12 << 20

Pools = Mapping[str, Sequence[Any]]
"""Field name, or "Struct.field" -> values that exist on the broker that gets the message."""


def arrays_of(cls: type[msgspec.Struct], version: int) -> Iterator[tuple[str, str]]:
    """The arrays of a message and of its nested structs, as (name of the struct, name of the field)."""
    for field in fields_of(cls):
        kind = field.type
        if field.tag is None and field.exists_in(version) and isinstance(kind, Array):
            yield cls.__name__, field.name
            if not isinstance(kind.element, Kind):
                yield from arrays_of(kind.element, version)


class Grammar:
    """Writes messages. `lengths`: the positions of lengths and counts in the last message, as (position, bytes).

    `elements_max`: one array of each message has this many elements, or `SWOLLEN_BYTES_MAX` bytes; 0: no such array.
    """

    def __init__(self, random: Random, pools: Pools, wildness: float = 0.0, elements_max: int = 0) -> None:
        self.random = random
        self.pools = pools
        self.wildness = wildness
        self.elements_max = elements_max
        self._swollen: tuple[str, str] | None = None  # the array with many elements, until it is written
        self._elements = 0  # elements written so far
        self.out = bytearray()
        self.lengths: list[tuple[int, int]] = []

    def request(self, api: Api, version: int, correlation_id: int = 7) -> bytes:
        """A request frame without its size prefix."""
        self.out, self.lengths = bytearray(), []
        if self.elements_max and (arrays := list(arrays_of(api.request, version))):
            self._swollen = self.random.choice(arrays)
        self.out += api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")
        self._blob(Kind.STRING, b"fuzz", is_null=self._wild(), is_flexible=False)
        if api.is_flexible(version):
            self._tags([], version)
        self._struct(api.request, version, api.is_flexible(version))
        return bytes(self.out)

    def _wild(self) -> bool:
        return self.wildness > 0 and self.random.random() < self.wildness

    # Structs

    def _struct(self, cls: type[msgspec.Struct], version: int, is_flexible: bool) -> None:
        fields = [field for field in fields_of(cls) if field.exists_in(version)]
        for field in fields:
            if field.tag is None:
                self._value(cls.__name__, field, version, is_flexible)
        if is_flexible:
            known = [(cls.__name__, field) for field in fields if field.tag is not None]
            self._tags(known, version)

    def _tags(self, known: list[tuple[str, Field]], version: int) -> None:
        random = self.random
        rows: list[tuple[int, bytes]] = []
        for owner, field in known:
            if random.random() < 0.5:
                rows.append((field.tag or 0, self._apart(owner, field, version)))
        if random.random() < 0.1:  # readers skip unknown tagged fields (KIP-482)
            first = max((field.tag or 0 for _, field in known), default=-1) + random.choice((1, 2, 100, 10_000))
            rows += [(first + n, random.randbytes(random.choice((0, 1, 5, 200)))) for n in range(random.choice((1, 2)))]
        count = len(rows)
        if self._wild():
            match random.randrange(4):
                case 0:
                    rows.reverse()
                case 1:
                    rows += rows[:1] or [(0, b"")]
                case 2:
                    rows = [(n, b"") for n in range(random.choice((63, 64, 65, 500)))]
                case 3:
                    count = random.choice(WRONG_LENGTHS) & 0xFFFFFFFF
            count = count if count != len(rows) and random.random() < 0.5 else len(rows)
        self.lengths.append((len(self.out), len(uvarint(count))))
        self.out += uvarint(count)
        for number, data in rows:
            self.out += uvarint(number)
            size = random.choice(WRONG_LENGTHS) & 0xFFFFFFFF if self._wild() else len(data)
            self.lengths.append((len(self.out), len(uvarint(size))))
            self.out += uvarint(size) + data

    def _apart(self, owner: str, field: Field, version: int) -> bytes:
        """The value of a tagged field, encoded separately."""
        outer, lengths = self.out, self.lengths
        self.out, self.lengths = bytearray(), []
        self._value(owner, field, version, True)
        data = bytes(self.out)
        self.out, self.lengths = outer, lengths
        return data

    # Values

    def _value(self, owner: str, field: Field, version: int, is_flexible: bool) -> None:
        nullable = field.nullable_in(version)
        is_null = self.random.random() < 0.15 if nullable else self._wild()
        pool = self.pools.get(f"{owner}.{field.name}", self.pools.get(field.name))
        kind = field.type
        if isinstance(kind, Array):
            self._array(owner, field, kind, version, is_flexible, is_null)
        elif isinstance(kind, Kind):
            self._primitive(kind, pool, is_flexible, is_null)
        else:
            if nullable:
                self.out += b"\xff" if is_null else b"\x01"
            if not (nullable and is_null):
                self._struct(kind, version, is_flexible)

    def _array(self, owner: str, field: Field, kind: Array, version: int, is_flexible: bool, is_null: bool) -> None:
        random = self.random
        if self._swollen == (owner, field.name):
            self._swollen = None
            self._many(field, kind, version, is_flexible)
            return
        count = -1 if is_null else random.choice(COUNTS) if random.random() < 0.97 else 40
        if self._swollen is not None:  # the large array may be inside an element
            count = max(1, count)
        said = random.choice(WRONG_LENGTHS) if self._wild() else count
        self._length(said, "i", is_flexible)
        pool = self.pools.get(f"{owner}.{field.name}", self.pools.get(field.name))
        self._elements += max(0, count)
        for _ in range(count):
            if isinstance(kind.element, Kind):
                self._primitive(kind.element, pool, is_flexible, False)
            else:
                self._struct(kind.element, version, is_flexible)

    def _many(self, field: Field, kind: Array, version: int, is_flexible: bool) -> None:
        """Write a large array: `DIFFERENT` elements, repeated up to the limits."""
        outer, lengths, before = self.out, self.lengths, self._elements
        self.out, self.lengths = bytearray(), []
        pool = self.pools.get(field.name)
        for _ in range(DIFFERENT):
            if isinstance(kind.element, Kind):
                self._primitive(kind.element, pool, is_flexible, False)
            else:
                self._struct(kind.element, version, is_flexible)
        data, self.out, self.lengths = bytes(self.out), outer, lengths
        each = DIFFERENT + self._elements - before
        times = max(1, min((self.elements_max - before) // each, SWOLLEN_BYTES_MAX // max(1, len(data))))
        self._elements = before + times * each
        self._length(times * DIFFERENT, "i", is_flexible)
        self.out += data * times

    def _primitive(self, kind: Kind, pool: Sequence[Any] | None, is_flexible: bool, is_null: bool) -> None:
        random = self.random
        value = random.choice(pool) if pool and random.random() < 0.85 else None
        if kind in BITS:
            bits = BITS[kind]
            number = self._integer(bits) if value is None else value
            self.out += (number & (1 << bits) - 1).to_bytes(bits // 8, "big")
        elif kind is Kind.BOOL:
            self.out.append(random.choice((0, 1, 1, 2, 255)))
        elif kind is Kind.FLOAT64:
            self.out += random.choice((bytes(8), random.randbytes(8), b"\x40\x8f\x40" + bytes(5)))
        elif kind is Kind.UUID:
            self.out += random.choice((bytes(16), random.randbytes(16))) if value is None else value
        elif kind is Kind.STRING:
            text = random.choice(NOT_UTF_8) if self._wild() else self._text(value).encode()
            self._blob(kind, text, is_null, is_flexible)
        else:
            blob = value if value is not None else random.randbytes(random.choice((0, 1, 7, 61, 300)))
            self._blob(kind, bytes(blob), is_null, is_flexible)

    def _text(self, value: str | None) -> str:
        return self.random.choice(TEXTS) if value is None else value

    def _integer(self, bits: int) -> int:
        random = self.random
        top = 1 << (bits - 1)
        return random.choice((0, 1, -1, 2, 10, top - 1, -top, top // 2, random.randrange(-top, top)))

    def _blob(self, kind: Kind, data: bytes, is_null: bool, is_flexible: bool) -> None:
        said = -1 if is_null else len(data)
        if self._wild():
            said = self.random.choice(WRONG_LENGTHS)
        self._length(said, "h" if kind is Kind.STRING else "i", is_flexible)
        if not is_null:
            self.out += data

    def _length(self, length: int, kind: str, is_flexible: bool) -> None:
        """Write a length or count, and note its position; -1 is null."""
        if is_flexible:
            data = uvarint((length + 1) & 0xFFFFFFFF)
        else:
            width = 2 if kind == "h" else 4
            data = (length & (1 << 8 * width) - 1).to_bytes(width, "big")
        self.lengths.append((len(self.out), len(data)))
        self.out += data
