"""The base classes of the client's exceptions, by what to do next (KIP-1050)."""

from __future__ import annotations

import re
from typing import ClassVar

from semel_protocol.acls import ADD_COMMAND
from semel_protocol.errors import ErrorCode, PortableError

SAID_SHARE = 0.7
"""The share of the words of an advice that makes it a repetition."""
FILLERS = {"and", "for", "the", "that", "thi", "with", "from", "its", "it", "not", "has", "have"}


class KafkaError(PortableError):
    """Base of every exception of this client.

    retriable: the same call may succeed later, unchanged. advice: what to do next; part of the message.
    """

    retriable: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def __init__(self, message: str = "") -> None:
        self.message = message
        advice = "" if ADD_COMMAND in message else self.advice  # the command is a better one
        super().__init__(_joined(message, advice))

    def extend_message(self, words: str) -> None:
        """Append a sentence that only the caller knows."""
        self.message = _joined(self.message, words)
        self.args = (_joined(str(self), words),)

    def add_other(self, other: KafkaError) -> None:
        """Add another failure of the same call as a note. Advice that both have stands once."""
        self.add_note(f"and {other}" if other.advice != self.advice else f"and {other.message.rstrip('.')}.")


def says(text: str, advice: str) -> bool:
    """Whether a text says most of an advice already: a broker's message often has its own, in similar words."""
    asked = _words(advice)
    return bool(asked) and len(asked & _words(text)) >= SAID_SHARE * len(asked)


def _words(text: str) -> set[str]:
    return {each.removesuffix("s") for each in re.findall("[a-z]{3,}", text.lower())} - FILLERS


def _joined(said: str, more: str) -> str:
    """Two sentences as one text. The first may lack its full stop or end with a question mark, or say the second."""
    said = said.rstrip(".")
    if says(said, more):
        return said
    if not said or not more:
        return said or more
    return f"{said}{'' if said.endswith('?') else '.'} {more}"


# Kinds by what to do next (KIP-1050). An exception class has at most one.


class RetriableError(KafkaError):
    """Try again: the cause is temporary. The client has retried already, until one of its timeouts."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """Try again: the client's metadata was stale and is being refreshed."""


class AbortableError(KafkaError):
    """Abort the transaction. The same producer can begin the next one."""


class ApplicationRecoverableError(KafkaError):
    """Create a new client and continue from the last commit."""


class MisconfiguredError(KafkaError):
    """Retrying cannot help: change the settings, the permissions or the broker first."""


class BrokerResponseError(KafkaError):
    """A broker answered with an error code. `code` is an ErrorCode, `errno` the same as a number; the class has them,
    too.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    errno: ClassVar[int] = int(ErrorCode.UNKNOWN_SERVER_ERROR)

    def __init__(self, message: str = "") -> None:
        prefix = f"[{self.code.value} {self.code.name}] "
        super().__init__(f"{prefix}{message.removeprefix(prefix)}".rstrip())

    def __init_subclass__(cls, code: ErrorCode | None = None) -> None:
        if code is not None:
            cls.code, cls.errno, cls.retriable = code, int(code), code.retriable
            ERROR_OF[code] = cls


ERROR_OF: dict[ErrorCode, type[BrokerResponseError]] = {}
"""The exception class of each error code that has its own."""
