"""PURE: the end of waiting requests when the connection of their client is lost."""

from __future__ import annotations

from collections.abc import Callable


class Parting:
    """The calls of one connection for its end, by key. A later call of a key replaces the one before."""

    __slots__ = ("_calls", "_is_over")

    def __init__(self) -> None:
        self._calls: dict[object, Callable[[], None]] | None = None  # most connections never have one
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the connection is lost."""
        return self._is_over

    def note(self, key: object, call: Callable[[], None]) -> None:
        """Make `call` when the connection is lost; at once if it is."""
        if self._is_over:
            call()
            return
        if self._calls is None:
            self._calls = {}
        self._calls[key] = call

    def forget(self, key: object) -> None:
        """The call of this key is not needed any more."""
        if self._calls is not None:
            self._calls.pop(key, None)

    def end(self) -> None:
        """The connection is lost."""
        self._is_over = True
        calls, self._calls = self._calls, None
        for call in (calls or {}).values():
            call()
