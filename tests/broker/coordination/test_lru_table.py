"""A table of the values that were set last."""

from __future__ import annotations

from semel_broker.coordination.lru_table import LruTable


def test_the_key_that_was_set_the_longest_ago_is_forgotten() -> None:
    recent: LruTable[str, int] = LruTable(2)
    for at, key in enumerate("abac"):
        recent.put(key, at)
    assert [recent.get(key) for key in "abc"] == [2, None, 3]
    assert len(recent) == 2
