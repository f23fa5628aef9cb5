"""The producer ids of a test's coordinator, and their owners."""

from __future__ import annotations

from collections.abc import Callable

from semel_broker.cluster.store import Store
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.coordination.producer_owners import ProducerOwners
from semel_broker.world import SilentLogger

SECRET = b"a secret of 32 bytes, for tests."


def owners(secret: bytes = SECRET, *, unbound_end: Callable[[], int] = lambda: 0) -> ProducerOwners:
    """The owners of a broker with a stopped clock."""
    return ProducerOwners(secret, log=SilentLogger(), clock=lambda: 0.0, unbound_end=unbound_end)


def producer_ids(store: Store) -> ProducerIds:
    """The producer ids over this store. Those that a broker of an older version would give out are accepted, too."""
    return ProducerIds(store, owners(unbound_end=lambda: 1_000_000))
