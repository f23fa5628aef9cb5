"""The refusal that has no answer: the connection is closed instead."""

from __future__ import annotations


class CloseConnectionError(Exception):
    """There is no answer to this request: the connection is closed, and the log says why."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields
