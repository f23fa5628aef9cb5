"""PURE: all counters of a broker."""

from __future__ import annotations

from msgspec import Struct, field
from semel_storage.histogram import Histogram

from semel_broker.counters.connections import ConnectionCounters
from semel_broker.counters.coordinators import GroupCounters, TransactionCounters
from semel_broker.counters.requests import CurrentRequest, RequestCounters


class AppendCounters(Struct):
    """`refused`: batches of producers that were not appended, by error code."""

    refused: dict[int, int] = {}


class StoreCounters(Struct):
    """Requests to the store of the cluster. `seconds`: of those that were answered, by operation."""

    seconds: dict[str, Histogram] = {}
    failed: dict[str, int] = {}


class SecurityCounters:
    """What clients prove, and what they are refused. One per broker."""

    def __init__(self) -> None:
        self.authenticated: dict[tuple[str, str], int] = {}
        """By (listener, mechanism)."""
        self.failed: dict[tuple[str, str, str], int] = {}
        """By (listener, mechanism, reason)."""
        self.refused: dict[tuple[str, str], int] = {}
        """Decisions of the authorizer, by (operation, type of resource)."""
        self.refused_for_audit = 0
        """Requests that were refused because the audit log could not be written."""

    def note_authenticated(self, listener: str, mechanism: str) -> None:
        key = listener, mechanism
        self.authenticated[key] = self.authenticated.get(key, 0) + 1

    def note_failed(self, listener: str, mechanism: str, reason: str) -> None:
        key = listener, mechanism, reason
        self.failed[key] = self.failed.get(key, 0) + 1

    def note_refused(self, operation: str, kind: str) -> None:
        key = operation, kind
        self.refused[key] = self.refused.get(key, 0) + 1


class Counters(Struct):
    """One per broker. `peer_requests`: requests of other brokers."""

    requests: RequestCounters = field(default_factory=RequestCounters)
    peer_requests: RequestCounters = field(default_factory=RequestCounters)
    connections: ConnectionCounters = field(default_factory=ConnectionCounters)
    appends: AppendCounters = field(default_factory=AppendCounters)
    transactions: TransactionCounters = field(default_factory=TransactionCounters)
    groups: GroupCounters = field(default_factory=GroupCounters)
    security: SecurityCounters = field(default_factory=SecurityCounters)
    work: CurrentRequest = field(default_factory=CurrentRequest)
    recovery_seconds: float = 0.0
    """The time that the start took to open and recover all logs."""
