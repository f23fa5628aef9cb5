"""EDGE: warns when Python drops a client that was never stopped. Nothing else depends on the garbage collector."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

log = logging.getLogger(__name__)


class DropWarning:
    """A part of a client, which Python drops together with it. words: what to say then; "" for nothing."""

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words

    def __del__(self) -> None:
        if text := self._words():
            warnings.warn(f"unclosed {text}", ResourceWarning, source=self, stacklevel=2)
            log.warning("%s; await its stop() or close(), or use `async with`", text)
