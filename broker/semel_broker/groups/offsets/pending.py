"""PURE: The offsets of open transactions, by key, in the order of the log; the same live and on replay.

Of the records of a key the last one in the log counts, without those of aborted transactions. Compaction keeps that
record, so clients must see the same. A transaction's record therefore loses to any record behind it. Once its marker
comes, it replaces every record before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Writer = tuple[int, int]
"""(partition of `__consumer_offsets`, producer id): a producer has at most one transaction open in a partition."""

K = TypeVar("K")
V = TypeVar("V")


class PendingOffsets(Generic[K, V]):
    """Key -> the values of open transactions, each with its position in the log, in the order of the log.

    `group_of(key)`: the group that the key belongs to, for `groups` and `of_group`.
    """

    __slots__ = ("_by_group", "_group_of", "_held", "_keys")

    def __init__(self, group_of: Callable[[K], str] = lambda _: "") -> None:
        self._group_of = group_of
        self._held: dict[K, dict[Writer, tuple[int, V]]] = {}
        self._keys: dict[Writer, dict[K, None]] = {}
        self._by_group: dict[str, dict[K, None]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[tuple[K, Writer, int, V]]:
        return (
            (key, writer, position, value)
            for key, held in self._held.items()
            for writer, (position, value) in held.items()
        )

    def groups(self) -> Iterable[str]:
        """The groups for which an open transaction has written a key."""
        return self._by_group.keys()

    def of_group(self, group: str) -> Iterable[K]:
        """The keys of the group that an open transaction has written."""
        return self._by_group.get(group, {}).keys()

    def of(self, key: K) -> list[V]:
        """The values that open transactions have written for this key, in the order of the log."""
        return [value for _, value in self._held.get(key, {}).values()]

    def hold(self, writer: Writer, key: K, position: int, value: V) -> None:
        """`writer`'s transaction has written `value` at `position`, after all earlier calls."""
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = {}
            self._by_group.setdefault(self._group_of(key), {})[key] = None
        before = held.pop(writer, None)
        assert before is None or before[0] <= position, (key, before, position)
        held[writer] = (position, value)
        self._keys.setdefault(writer, {})[key] = None

    def supersede(self, key: K, position: int) -> None:
        """A record that counts stands at `position`: drop the values from before it."""
        for writer, (held_at, _) in list(self._held.get(key, {}).items()):
            if held_at < position:
                self._drop(writer, key)

    def end(self, writer: Writer, commit: bool) -> list[tuple[K, V]]:
        """End `writer`'s transaction: the values that count from now on, in the order of the log."""
        decided: list[tuple[K, V]] = []
        for key in self._keys.pop(writer, ()):
            held = self._held[key]
            position, value = held.pop(writer)
            if not held:
                self._forget(key)
            elif commit:
                self.supersede(key, position)
            if commit:
                decided.append((key, value))
        return decided

    def _drop(self, writer: Writer, key: K) -> None:
        held, keys = self._held[key], self._keys[writer]
        del held[writer], keys[key]
        if not held:
            self._forget(key)
        if not keys:
            del self._keys[writer]

    def _forget(self, key: K) -> None:
        """No open transaction has a value of this key any more."""
        del self._held[key]
        siblings = self._by_group[group := self._group_of(key)]
        del siblings[key]
        if not siblings:
            del self._by_group[group]
