"""The two results of a request that are neither a response nor an awaitable of one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from semel_protocol.errors import PortableError
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Message

T = TypeVar("T")


class InOrder(Generic[T]):
    """The answer of a pipelined request whose effect is still to come.

    The connection starts no later request before this one is answered.
    """

    __slots__ = ("answer",)

    def __init__(self, answer: Coroutine[Any, Any, T]) -> None:
        self.answer = answer


class CloseConnectionError(PortableError):
    """The broker closes the connection and logs `reason` with `fields`.

    `answer`: the last response of the connection, sent before; None: the request gets none. `chunks`: the same, encoded
    by the dispatcher.
    """

    def __init__(self, reason: str, *, answer: Message | None = None, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer
        self.chunks: list[Buffer] = []
        self.fields = fields
