"""PURE: matches names against the regular expressions of clients, with RE2, and bounds the work and the memory of it.

An expression comes from a client and is matched in the broker's event loop, so a backtracking matcher would let one
client stop the broker. RE2 follows all ways through an expression at once: a match takes time linear in the states of
the expression times the bytes of the name, and both are bounded here. Apache Kafka evaluates the same expressions with
RE2/J. docs/compatibility.md lists the syntax. A name has to match as a whole.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2
from semel_protocol.errors import ErrorCode, KafkaError

LENGTH_MAX: Final = 1_000
"""Characters of one expression. RE2 compiles so many in 40 ms, whatever they are."""
STATES_MAX: Final = 5_000
"""States of one expression, counted repetitions included."""
WORK_MAX: Final = 1_250_000
"""States of an expression times bytes of a name: at most some 20 ms of work. Every topic's name is within it."""
WORK_PER_STEP: Final = 5_000
"""Work in the time of one step of a slice, if RE2 has to build the sets of states."""
STEPS_PER_MATCH: Final = 4
"""Steps of a slice that a match of little work counts as."""
MEMORY_MAX: Final = 1 << 20
"""Bytes of one compiled expression: RE2's states, and the sets of states that it has seen."""
CACHE_BYTES_MAX: Final = 32 << 20
"""Bytes of all expressions that `compiled` keeps."""
SHOWN_MAX: Final = 60
"""Characters of an expression that an error shows."""


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MEMORY_MAX
    options.log_errors = False  # it would write to stderr
    options.never_capture = True
    return options


class Expression:
    """One compiled expression. Raises INVALID_REGULAR_EXPRESSION for one that is malformed, unknown or too large."""

    __slots__ = ("_compiled", "states", "text")

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise _invalid(text, f"it has {len(text)} characters, and at most {LENGTH_MAX} are allowed")
        self.text = text
        try:
            self._compiled = re2.compile(text, _options())
        except re2.error as error:
            raise _invalid(text, f"RE2 refuses it: {_reason(error)}") from None
        finally:
            re2.purge()  # its cache is bounded in expressions, not in bytes
        self.states: int = self._compiled.programsize
        if self.states > STATES_MAX:
            raise _invalid(text, f"it needs {self.states} states, and at most {STATES_MAX} are allowed: {SMALLER}")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. Raises INVALID_REGULAR_EXPRESSION if `is_too_much_for` the name."""
        if self.is_too_much_for(name):
            why = f"its {self.states} states are too many for a name of {len(name.encode())} bytes: {SMALLER}"
            raise _invalid(self.text, why)
        return self._compiled.fullmatch(name) is not None

    def is_too_much_for(self, name: str) -> bool:
        """Whether a match of this name would hold the loop for too long."""
        return self.states * len(name.encode()) > WORK_MAX

    def steps(self, name: str) -> int:
        """The steps of a slice that a match of this name counts as."""
        return max(STEPS_PER_MATCH, self.states * len(name) // WORK_PER_STEP)


SMALLER: Final = "use smaller counts, or fewer Unicode classes"


def _reason(error: Exception) -> str:
    """RE2's words, which it gives as bytes."""
    reason = error.args[0] if error.args else b""
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return f"{text}: {SMALLER}" if "too large" in text else repr(_shown(text))


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _invalid(text: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"{_shown(text)!r} is no regular expression of this broker: {why}"
    )


@lru_cache(maxsize=CACHE_BYTES_MAX // MEMORY_MAX)
def compiled(text: str) -> Expression:
    """The expression; the last ones are kept. Raises INVALID_REGULAR_EXPRESSION."""
    return Expression(text)
