"""PURE: a bounded table by key. When it is full, it drops the key that was set the longest ago."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruTable(Generic[K, V]):
    """Values by key, for the `size_max` keys whose values were set last."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value of a key. None: it was never set, or it is forgotten."""
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key. If the table is full, the key that was set the longest ago is forgotten."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size_max:
            self._values.popitem(last=False)
