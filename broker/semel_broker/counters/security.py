"""PURE: counts what clients prove and what they are refused."""

from __future__ import annotations


class SecurityCounters:
    """One per broker. `authenticated`: by (listener, mechanism). `failed`: by (listener, mechanism, reason).
    `refused`: decisions of the authorizer, by (operation, type of resource). `refused_for_audit`: requests that were
    refused because the audit log could not be written."""

    def __init__(self) -> None:
        self.authenticated: dict[tuple[str, str], int] = {}
        self.failed: dict[tuple[str, str, str], int] = {}
        self.refused: dict[tuple[str, str], int] = {}
        self.refused_for_audit = 0

    def note_authenticated(self, listener: str, mechanism: str) -> None:
        key = listener, mechanism
        self.authenticated[key] = self.authenticated.get(key, 0) + 1

    def note_failed(self, listener: str, mechanism: str, reason: str) -> None:
        key = listener, mechanism, reason
        self.failed[key] = self.failed.get(key, 0) + 1

    def note_refused(self, operation: str, kind: str) -> None:
        key = operation, kind
        self.refused[key] = self.refused.get(key, 0) + 1
