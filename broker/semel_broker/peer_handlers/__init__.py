"""The handlers of requests between brokers, served on a listener of their own.

They are never served to clients (CVE-2018-1288: a client poses as a replica). Brokers of a cluster use one version of
each API, the newest that is declared, so this listener has no ApiVersions.
"""

from __future__ import annotations

from functools import partial

from semel_broker.handlers import Handler, k65_describe_transactions, k66_list_transactions
from semel_broker.handlers.api_versions import Versions
from semel_broker.peer_handlers import (
    k01_replica_fetch,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k27_write_txn_markers,
)
from semel_broker.replication.sessions import Sessions

PEER_VERSIONS: dict[int, Versions] = {
    1: (15, 15),
    23: (4, 4),
    24: (4, 5),
    27: (1, 1),
    65: (0, 0),
    66: (1, 1),
}
"""API key -> versions that brokers use between each other."""


def peer_handlers(sessions: Sessions) -> dict[int, Handler]:
    """API key -> handler. `sessions`: the fetch sessions of this broker's followers."""
    return {
        1: partial(k01_replica_fetch.handle, sessions),
        23: partial(k23_offset_for_leader_epoch.handle, sessions),
        24: k24_add_partitions_to_txn.handle,
        27: k27_write_txn_markers.handle,
        65: k65_describe_transactions.handle,
        66: k66_list_transactions.handle,
    }
