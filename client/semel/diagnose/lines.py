"""PURE: the lines of an explanation, without colours and without a width."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec


class Tone(Enum):
    """The weight of a line."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class DiagnosisLine(msgspec.Struct, frozen=True):
    """A line of an explanation.

    heading: the words before the text that say what it is about. caption: the word in a column of its own before the
    text; "" leaves that column empty, None is a line without columns. A text that begins with `semel ` is a command.
    """

    text: str = ""
    tone: Tone = Tone.PLAIN
    heading: str = ""
    caption: str | None = None

    @property
    def plain(self) -> str:
        """The line as one text, with its columns."""
        return self.heading + self.text if self.caption is None else f"  {self.caption:<12}{self.text}"


def captioned(pairs: Sequence[tuple[str, str]]) -> list[DiagnosisLine]:
    """Pairs of a caption and a text as lines."""
    return [DiagnosisLine(text, caption=caption) for caption, text in pairs]
