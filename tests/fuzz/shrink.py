"""Searches for fewer and shorter conversations that still fail, by leaving out smaller and smaller pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fuzz.mutations import SIZE_BYTES, framed

T = TypeVar("T")

Conversations = list[list[bytes]]
Fails = Callable[[Conversations], bool]
TRIES_MAX = 400


class Budget:
    """Limits the number of tries. After the last one every try counts as not failing."""

    def __init__(self, fails: Fails, tries: int) -> None:
        self._fails, self.left = fails, tries

    def still(self, conversations: Conversations) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(conversations)


def smallest(conversations: Conversations, fails: Fails, tries: int = TRIES_MAX) -> Conversations:
    """The smallest failing conversations found. The given ones if they do not fail when run again."""
    budget = Budget(fails, tries)
    if not budget.still(conversations):
        return conversations
    kept = _without(conversations, lambda some: budget.still(list(some)))
    for at in range(len(kept)):

        def with_frames(frames: Sequence[bytes], at: int = at) -> bool:
            return budget.still([*kept[:at], list(frames), *kept[at + 1 :]])

        kept[at] = list(_without(kept[at], with_frames))
        for place in range(len(kept[at])):

            def with_body(body: Sequence[int], place: int = place, at: int = at) -> bool:
                frames = [*kept[at][:place], framed(bytes(body)), *kept[at][place + 1 :]]
                return budget.still([*kept[:at], frames, *kept[at + 1 :]])

            kept[at][place] = _shorter(kept[at][place], with_body)
    return kept


def _shorter(frame: bytes, fails: Callable[[Sequence[int]], bool]) -> bytes:
    body = frame[SIZE_BYTES:]
    if framed(body) != frame or not body:
        return frame  # the fault may be in the size prefix
    kept: list[int] = _without(list[int](body), fails)
    return framed(bytes(kept))


def _without(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """`items` without the pieces that can be left out."""
    kept = list(items)
    size = len(kept) // 2
    while size:
        at = 0
        while at < len(kept) and len(kept) > 1:
            fewer = [*kept[:at], *kept[at + size :]]
            if fewer and fails(fewer):
                kept = fewer
            else:
                at += size
        size //= 2
    return kept
