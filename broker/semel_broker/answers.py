"""What the connection and the handler of a request tell each other besides the response."""

from __future__ import annotations

from semel_protocol.errors import PortableError
from semel_protocol.primitives import Buffer
from semel_protocol.schema import Message


class RequestOrder:
    """The place of one request in the order of its connection.

    A connection starts its next request when this one is answered, or when `next_may_start` is set before the first
    wait of the handler: its effect has happened, and only its durability is awaited. Set later it has no effect.
    """

    __slots__ = ("next_may_start",)

    def __init__(self) -> None:
        self.next_may_start = False


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
