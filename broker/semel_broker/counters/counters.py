"""PURE: all counters of a broker."""

from __future__ import annotations

from msgspec import Struct, field
from semel_storage.histogram import Histogram

from semel_broker.counters.connections import ConnectionCounters
from semel_broker.counters.coordinators import GroupCounters, TransactionCounters
from semel_broker.counters.requests import CurrentRequest, RequestCounters
from semel_broker.counters.security import SecurityCounters


class AppendCounters(Struct):
    """`refused`: batches of producers that were not appended, by error code."""

    refused: dict[int, int] = {}


class StoreCounters(Struct):
    """Requests to the store of the cluster. `seconds`: of those that were answered, by operation."""

    seconds: dict[str, Histogram] = {}
    failed: dict[str, int] = {}


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
