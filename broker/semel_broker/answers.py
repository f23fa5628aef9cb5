"""What a handler may answer with besides a response or an awaitable of one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """A pipelined request whose effect is yet to come: nothing behind it on its connection may start before it is
    answered."""

    __slots__ = ("answer",)

    def __init__(self, answer: Coroutine[Any, Any, T]) -> None:
        self.answer = answer
