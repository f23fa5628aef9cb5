"""Values that no argument of a public call expects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import Any

from semel.structs import OffsetAndMetadata, TopicPartition


class Raises:
    """Each of its methods raises."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("refused")

    __repr__ = __str__ = __len__ = __iter__ = __index__ = __int__ = __float__ = __bool__ = __bytes__ = _refuse
    __eq__ = __lt__ = __gt__ = __getitem__ = __contains__ = __buffer__ = _refuse

    def __hash__(self) -> int:
        raise RuntimeError("refused")


class RaisingText(str):
    """A str whose methods raise."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        raise RuntimeError("refused")

    def __str__(self) -> str:
        raise RuntimeError("refused")


class Number(IntEnum):
    SEVEN = 7


class Name(str, Enum):  # noqa: UP042  (its str is 'Name.T')
    T = "t"


def generator() -> Iterator[Any]:
    yield "t"
    raise RuntimeError("refused")


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    1 << 31,
    1 << 63,
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "t",
    "a/b",
    ".",
    "x" * 300,
    "x" * 40_000,
    "\ud800",
    b"t",
    bytearray(b"t"),
    memoryview(b"t"),
    released(),
    Raises(),
    RaisingText("t"),
    Number.SEVEN,
    Name.T,
    object(),
    [],
    ["t"],
    [None],
    ("t", 0),
    ("t", -1),
    ("t", 1 << 40),
    ("t", "0"),
    {"t": 1},
    {"t": "1"},
    {Name.T: Raises()},
    {TopicPartition("t", 0): 5},
    {TopicPartition("t", 0): -5},
    {TopicPartition("t", 0): 1.5},
    {TopicPartition("t", 0): OffsetAndMetadata(5, "\ud800")},
    {TopicPartition("t", 0): OffsetAndMetadata(1 << 70, "x")},
    TopicPartition("t", 0),
    TopicPartition("t", 1 << 40),
    TopicPartition(b"t", 0),  # type: ignore[arg-type]
    [TopicPartition("t", 0)],
    [TopicPartition("\ud800", 0)],
    re.compile(b"t"),
    re.compile("t"),
    lambda: None,
    str,
    1j,
]
"""Without generators, which are read only once."""
