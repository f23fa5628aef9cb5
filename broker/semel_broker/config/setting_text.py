"""PURE: the text of settings and its values, in the syntax of Kafka's ConfigDef, which is Java's.

Kafka accepts and refuses the same texts, except NaN: Kafka accepts it, although no bound can hold for it.
"""

import re
from decimal import Decimal
from math import isnan
from typing import Final

BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's `trim` removes: controls and the space, no other blank of Unicode."""
BOOLEANS: Final = {"true": True, "false": False}
SEPARATOR: Final = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?",
)
DIGITS_MAX: Final = 1_000
"""More digits than any number of 64 bits has, with leading zeros included."""
PLAIN_MIN, PLAIN_BELOW = 1e-3, 1e7
"""Java writes a double without an exponent from here to there."""


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text. Python makes surrogates of bytes of arguments and variables that are not."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def whole_number(text: str) -> int:
    """An int or a long: a sign and decimal digits, of any script. Raises ValueError; the bounds are not looked at."""
    text = text.strip(BLANKS)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > DIGITS_MAX or max(digits) > "\uffff":
        raise ValueError(text)
    return int(text)


def number(text: str) -> float:
    """A double: decimal, or hexadecimal with a binary exponent. Raises ValueError, also for NaN."""
    text = text.strip(BLANKS)
    if match := DECIMAL.fullmatch(text):
        return float(match[1])
    if match := HEXADECIMAL.fullmatch(text):
        return float.fromhex(match[1])
    raise ValueError(text)


def boolean(text: str) -> bool:
    """Raise ValueError for anything but true and false, in whatever case."""
    value = BOOLEANS.get(text.strip(BLANKS).lower())
    if value is None:
        raise ValueError(text)
    return value


def elements(text: str) -> list[str]:
    """The elements of a list; blank text has none. Between two commas there is one, an empty one perhaps."""
    text = text.strip(BLANKS)
    return SEPARATOR.split(text) if text else []


def plain(text: str) -> str:
    """Text without the blanks around it."""
    return text.strip(BLANKS)


def text_of(value: float) -> str:
    """A double as Java writes it."""
    assert not isnan(value)
    if value == 0 or PLAIN_MIN <= abs(value) < PLAIN_BELOW:
        return repr(value)
    exact = Decimal(repr(value)).normalize()
    digits = "".join(map(str, exact.as_tuple().digits))
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exact.adjusted()}"
