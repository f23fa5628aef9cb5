"""The two results of a request that are neither a response nor an awaitable of one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """The answer of a pipelined request whose effect is still to come.

    The connection starts no later request before this one is answered.
    """

    __slots__ = ("answer",)

    def __init__(self, answer: Coroutine[Any, Any, T]) -> None:
        self.answer = answer


class CloseConnectionError(Exception):
    """The request gets no answer: the broker closes the connection and logs `reason` with `fields`."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields
