"""PURE: the parameters of a request and fields of its body, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from semel import TopicPartition
from semel.diagnose import StartPosition, StartPositionError, start_position
from starlette.datastructures import ImmutableMultiDict


class QueryParameters:
    """The parameters after the `?`. Each method raises ValueError with a sentence for a wrong value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, default: str | None = None) -> str:
        """A text that must be given, unless there is a default."""
        value = self._given.get(name) or default
        if value is None:
            raise ValueError(f"the parameter {name!r} is missing")
        return value

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of the choices."""
        value = self._given.get(name, default)
        if value not in choices:
            raise ValueError(f"the parameter {name!r} must be {' or '.join(choices)}, and is {value!r}")
        return value

    def only(self, *names: str) -> QueryParameters:
        """The same. No other parameters may be given, and none twice: a misspelt one would be ignored."""
        for name in self._given:
            if name not in names:
                raise ValueError(f"there is no parameter {name!r}: use {', '.join(names)}")
        if isinstance(self._given, ImmutableMultiDict) and len(self._given.multi_items()) > len(self._given):
            raise ValueError("a parameter is given twice")
        return self

    def number(self, name: str, default: int | None = None, *, most: int = 2**63 - 1) -> int:
        """A number from 0 to `most`."""
        text = self._given.get(name, "")
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdigit()) or int(text) > most:
            raise ValueError(f"the parameter {name!r} must be a number from 0 to {most}, and is {text!r}")
        return int(text)

    def position(self, name: str, default: str, now_ms: int) -> StartPosition:
        """A start position, or `-50` for the last 50 records."""
        return position(self.text(name, default), name, now_ms, may_be_last=True)

    @property
    def place(self) -> TopicPartition:
        """The parameters `topic` and `partition`."""
        return TopicPartition(self.text("topic"), self.number("partition", most=2**31 - 1))


def position(words: str, name: str, now_ms: int, *, may_be_last: bool = False) -> StartPosition:
    """As `semel.diagnose.start_position`. Raises ValueError with the name of the parameter."""
    try:
        return start_position(words, now_ms, may_be_last=may_be_last)
    except StartPositionError as e:
        raise ValueError(f"Invalid value for {name}: {e}") from None


def must_be_typed(typed: str, name: str) -> None:
    """Raise ValueError unless the name of the thing was typed. A request without it deletes nothing."""
    if typed != name:
        raise ValueError(f"nothing was deleted: the field `typed` must repeat {name!r}, and is {typed!r}")
