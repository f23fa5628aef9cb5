"""What all exceptions of this client have in common, and the kinds there are by what to do next (KIP-1050)."""

from __future__ import annotations

from typing import ClassVar

from semel_protocol.errors import ErrorCode


class KafkaError(Exception):
    """Base of everything this client raises on its own account.

    `retriable`: the same call may succeed later, unchanged. `advice`: what to do about it, part of the message.
    """

    retriable: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def __init__(self, message: str = "") -> None:
        self.message = message
        super().__init__(_joined(message, self.advice))

    def extend_message(self, words: str) -> None:
        """Says more, where only a caller knows it."""
        self.message = _joined(self.message, words)
        self.args = (_joined(str(self), words),)


def _joined(said: str, more: str) -> str:
    """Two sentences, the first of which may lack its full stop or be a question."""
    said = said.rstrip(".")
    if not said or not more:
        return said or more
    return f"{said}{'' if said.endswith('?') else '.'} {more}"


# By what to do next (KIP-1050); an exception is of one kind at most


class RetriableError(KafkaError):
    """Try again: nothing is wrong that time does not heal. The client did so already, until a timeout of its own."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """Try again: our picture of leaders and coordinators was old, and is being refreshed."""


class AbortableError(KafkaError):
    """Abort the transaction; the same producer can begin the next one."""


class ApplicationRecoverableError(KafkaError):
    """Make a new client, and go on from what was committed last."""


class MisconfiguredError(KafkaError):
    """Trying again cannot help: change settings, permissions or the broker first."""


class BrokerResponseError(KafkaError):
    """A broker answered with an error code: `code` (an ErrorCode); `errno` is the same as a plain number."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "") -> None:
        super().__init__(f"[{self.code.value} {self.code.name}] {message}".rstrip())

    @property
    def errno(self) -> int:
        return int(self.code)

    def __init_subclass__(cls, code: ErrorCode | None = None) -> None:
        if code is not None:
            cls.code, cls.retriable = code, code.retriable
            ERROR_OF[code] = cls


ERROR_OF: dict[ErrorCode, type[BrokerResponseError]] = {}
"""The exception of each error code that has its own."""
