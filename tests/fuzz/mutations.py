"""Mutations of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)
SIZE_BYTES = 4

Mutation = Callable[[bytearray, Random], None]


def flip_bits(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def put_extremes(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 4))):
        data[random.randrange(len(data))] = random.choice(EXTREMES)


def put_extreme_number(data: bytearray, random: Random) -> None:
    width = random.choice((2, 4, 8))
    at = random.randrange(len(data))
    number = random.choice((0, 1, -1, -2, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, 1000))
    data[at : at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "big")


def cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def drop_a_piece(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 2, 4, 16))]


def repeat_a_piece(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    piece = data[at : at + random.choice((1, 4, 16, 61, len(data)))]
    data[at:at] = piece * random.choice((1, 1, 2, 20))


def insert_noise(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.choice((1, 2, 8, 100)))


def zero_a_piece(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    size = min(random.choice((1, 8, 64, 512)), len(data) - at)
    data[at : at + size] = bytes(size)


MUTATIONS: Sequence[Mutation] = (
    flip_bits,
    put_extremes,
    put_extreme_number,
    cut,
    drop_a_piece,
    repeat_a_piece,
    insert_noise,
    zero_a_piece,
)


def mutate(data: bytes, random: Random, *, times: int = 1, among: Sequence[Mutation] = MUTATIONS) -> bytes:
    """`data` after `count` random mutations."""
    out = bytearray(data)
    for _ in range(times):
        if out:
            random.choice(among)(out, random)
    return bytes(out)


def change_a_length(data: bytes, lengths: Sequence[tuple[int, int]], random: Random) -> bytes:
    """Change one of the lengths and counts at `lengths`, as (position, bytes), to an extreme value."""
    if not lengths:
        return data
    at, width = random.choice(lengths)
    out = bytearray(data)
    if width in (2, 4) and random.random() < 0.7:
        number = random.choice((0, -1, -2, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, 2, 255))
        out[at : at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "big")
    else:
        extremes = (
            b"\x00",
            b"\x7f",
            b"\xff\x7f",
            b"\xff\xff\xff\xff\x07",
            b"\xff\xff\xff\xff\x0f",
            b"\xff" * 6,
            b"\x80",
        )
        out[at : at + width] = random.choice(extremes)
    return bytes(out)


def splice(first: bytes, second: bytes, random: Random) -> bytes:
    """A beginning of `first` and an end of `second`."""
    return first[: random.randrange(len(first) + 1)] + second[random.randrange(len(second) + 1) :]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(SIZE_BYTES, "big") + body


def misframed(body: bytes, random: Random) -> bytes:
    """The body under a wrong size prefix."""
    said = random.choice((0, -1, len(body) - 1, len(body) + 1, 1 << 30, (1 << 31) - 1, -(1 << 31), 3, 8))
    return (said & 0xFFFFFFFF).to_bytes(SIZE_BYTES, "big") + body
