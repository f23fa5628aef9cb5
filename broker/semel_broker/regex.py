"""PURE: matches names against the regular expressions of members and of subscriptions, in time linear in the name.

A subscription comes from a client and is matched in the broker's event loop, so a backtracking matcher would let one
client stop the broker. This one follows all ways through the expression at once, as RE2 does (Thompson 1968), and keeps
the sets of states that it has seen. The syntax is the part of RE2's that topic names need: literals, `.`, classes,
`\\d \\w \\s` and their negations, groups, `|`, `* + ? {m,n}`, lazy or not, and the anchors `^ $ \\A \\z`. A name has to
match as a whole. Backreferences and look-around do not exist in RE2 either.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from semel_protocol.errors import ErrorCode, KafkaError

LENGTH_MAX: Final = 1_000
"""Characters of one expression."""
STATES_MAX: Final = 5_000
"""States of one expression, counted repetitions included."""
REPEAT_MAX: Final = 1_000
"""Greatest bound of a counted repetition, as in RE2."""
CACHED_MAX: Final = 2_000
"""Sets of states that are kept for one expression."""
DEPTH_MAX: Final = 100

_COUNT: Final = re.compile(r"\{(\d{1,6})(,(\d{0,6}))?\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_POSIX: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_POSIX_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_NAMED: Final = re.compile(r"\(\?P?<[A-Za-z_]\w*>")
_START, _END = "start", "end"

Tree = tuple[Any, ...]
"""A part of an expression: its kind, then what the kind needs."""
Node = tuple[str, Any, int, int]
"""(kind, what, next state, other next state); kinds: "char", "split", "anchor", "match"."""


class Expression:
    """One compiled expression. Raises INVALID_REGULAR_EXPRESSION for one that is malformed, unknown or too large."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise invalid(text[:40], f"it has {len(text)} characters, and at most {LENGTH_MAX} are allowed")
        self._text = text
        self._at = 0
        self._depth = 0
        self._work = 0
        self._nodes: list[Node] = []
        match = self._add("match", None)
        self._first = self._build(self._alternatives(), match)
        if self._at < len(text):
            raise invalid(text, f"there is an unexpected {text[self._at]!r} at {self._at}")
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        states = self._closure([self._first], is_start=True, is_end=not name)
        for at, char in enumerate(name, 1):
            if at == len(name):
                states = self._closure(self._advance(states, char), is_start=False, is_end=True)
                break
            key = (states, char)
            following = self._steps.get(key)
            if following is None:
                following = self._closure(self._advance(states, char), is_start=False, is_end=False)
                if len(self._steps) >= CACHED_MAX:
                    self._steps.clear()
                self._steps[key] = following
            states = following
            if not states:
                return False
        return any(self._nodes[state][0] == "match" for state in states)

    # --- following ---

    def _advance(self, states: frozenset[int], char: str) -> list[int]:
        found = []
        for state in sorted(states):
            kind, what, following, _ = self._nodes[state]
            if kind == "char" and (what == char if isinstance(what, str) else what.fullmatch(char)):
                found.append(following)
        return found

    def _closure(self, states: list[int], *, is_start: bool, is_end: bool) -> frozenset[int]:
        """The states that consume a character or match, reached from these without one."""
        seen: set[int] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, what, following, other = self._nodes[state]
            if kind == "split":
                todo += (following, other)
            elif kind == "anchor" and (is_start if what == _START else is_end):
                todo.append(following)
        return frozenset(state for state in seen if self._nodes[state][0] in ("char", "match"))

    # --- states ---

    def _add(self, kind: str, what: object, following: int = -1, other: int = -1) -> int:
        if len(self._nodes) >= STATES_MAX:
            raise self._too_large()
        self._nodes.append((kind, what, following, other))
        return len(self._nodes) - 1

    def _too_large(self) -> KafkaError:
        return invalid(self._text, f"it needs more than {STATES_MAX} states: use smaller counts")

    def _build(self, tree: Tree, following: int) -> int:
        """Add the states of a tree, which lead to `following`; returns the first one."""
        self._work += 1
        if self._work > STATES_MAX * 4:  # repetitions of nothing add no states
            raise self._too_large()
        kind = tree[0]
        if kind in ("char", "anchor"):
            return self._add(kind, tree[1], following)
        if kind == "sequence":
            for part in reversed(tree[1]):
                following = self._build(part, following)
            return following
        if kind == "either":
            first = self._build(tree[1][-1], following)
            for part in reversed(tree[1][:-1]):
                first = self._add("split", None, self._build(part, following), first)
            return first
        _, part, low, high = tree
        if high is None:
            loop = self._add("split", None)
            self._nodes[loop] = ("split", None, self._build(part, loop), following)
            following = loop
        else:
            end = following
            for _ in range(high - low):
                following = self._add("split", None, self._build(part, following), end)
        for _ in range(low):
            following = self._build(part, following)
        return following

    # --- syntax ---

    def _alternatives(self) -> Tree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise invalid(self._text, f"groups are nested more than {DEPTH_MAX} deep")
        found = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            found.append(self._sequence())
        self._depth -= 1
        return ("either", found)

    def _sequence(self) -> Tree:
        parts = []
        while (char := self._peek()) and char not in "|)":
            parts.append(self._repeated(self._atom()))
        return ("sequence", parts)

    def _repeated(self, part: Tree) -> Tree:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        low: int
        high: int | None
        char = self._peek()
        if char in bounds and char:
            low, high = bounds[char]
            self._at += 1
        elif (count := _COUNT.match(self._text, self._at)) is not None:
            self._at = count.end()
            low = int(count[1])
            high = low if count[2] is None else int(count[3]) if count[3] else None
            if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
                raise invalid(self._text, f"{count[0]} is out of order or above {REPEAT_MAX}")
        else:
            return part
        if self._peek() == "?":  # lazy: the same names match
            self._at += 1
        if self._peek() in ("*", "+", "?"):
            raise invalid(self._text, f"there is nothing to repeat at {self._at}")
        return ("repeat", part, low, high)

    def _atom(self) -> Tree:
        char = self._text[self._at]
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        self._at += 1
        if char == "\\":
            return self._escape()
        if char == ".":
            return ("char", re.compile(r"[^\n]"))
        if char in "^$":
            return ("anchor", _START if char == "^" else _END)
        if char in "*+?":
            raise invalid(self._text, f"there is nothing to repeat at {self._at - 1}")
        return ("char", char)

    def _group(self) -> Tree:
        if self._text.startswith("(?:", self._at):
            self._at += 3
        elif (named := _NAMED.match(self._text, self._at)) is not None:
            self._at = named.end()
        elif self._text.startswith("(?", self._at):
            raise invalid(self._text, f"groups such as {self._text[self._at : self._at + 3]!r} are not supported")
        else:
            self._at += 1
        inner = self._alternatives()
        if self._peek() != ")":
            raise invalid(self._text, "a group is not closed")
        self._at += 1
        return inner

    def _class(self) -> Tree:
        found = _CLASS.match(self._text, self._at)
        if found is None:
            raise invalid(self._text, "a class is not closed")
        self._at = found.end()
        try:
            return ("char", re.compile(self._inside(found[0])))
        except (re.error, OverflowError) as error:
            raise invalid(self._text, f"{found[0]} is no class: {error}") from None

    def _inside(self, text: str) -> str:
        """The class for `re`, in which `[` and doubled signs have no meaning of their own."""
        inner = _POSIX.sub(self._posix, text[1:-1])
        escaped = re.sub(r"(?<!\\)\[|&&|--|\|\||~~", lambda found: "".join(f"\\{char}" for char in found[0]), inner)
        return f"[{escaped}]"

    def _posix(self, found: re.Match[str]) -> str:
        if found[1] or found[2] not in _POSIX_CLASSES:
            raise invalid(self._text, f"{found[0]} is not supported")
        return _POSIX_CLASSES[found[2]]

    def _escape(self) -> Tree:
        char = self._peek()
        self._at += 1
        if not char:
            raise invalid(self._text, "it ends with a backslash")
        if char in "dDwWsS":
            return ("char", re.compile(f"\\{char}", re.ASCII))
        if char in "Az":
            return ("anchor", _START if char == "A" else _END)
        if char in _ESCAPES:
            return ("char", _ESCAPES[char])
        if char == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
            self._at = len(self._text) if end < 0 else end + 2
            return ("sequence", [("char", each) for each in quoted])
        if char.isalnum():
            raise invalid(self._text, f"\\{char} is not supported")
        return ("char", char)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]


def invalid(text: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text!r} is no regular expression of this broker: {why}")


@lru_cache(maxsize=256)
def compiled(text: str) -> Expression:
    """The expression; the last ones are kept. Raises INVALID_REGULAR_EXPRESSION."""
    return Expression(text)
