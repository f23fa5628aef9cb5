"""The handlers of requests between brokers, served on a listener of their own.

They are never served to clients (CVE-2018-1288: a client poses as a replica). Brokers of a cluster use one version of
each API, the newest that is declared, so this listener has no ApiVersions.
"""

from __future__ import annotations

from functools import partial

from semel_protocol.api_key import ApiKey
from semel_protocol.declaration import Versions

from semel_broker.context import Handler
from semel_broker.handlers import k65_describe_transactions, k66_list_transactions
from semel_broker.peer_handlers import (
    k01_replica_fetch,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k27_write_txn_markers,
)
from semel_broker.replication.sessions import Sessions

PEER_VERSIONS: dict[int, Versions] = {
    ApiKey.FETCH: (15, 15),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (4, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (1, 1),
}
"""API key -> versions that brokers use between each other."""


def peer_handlers(sessions: Sessions) -> dict[int, Handler]:
    """API key -> handler. `sessions`: the fetch sessions of this broker's followers."""
    return {
        ApiKey.FETCH: partial(k01_replica_fetch.handle, sessions),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(k23_offset_for_leader_epoch.handle, sessions),
        ApiKey.ADD_PARTITIONS_TO_TXN: k24_add_partitions_to_txn.handle,
        ApiKey.WRITE_TXN_MARKERS: k27_write_txn_markers.handle,
        ApiKey.DESCRIBE_TRANSACTIONS: k65_describe_transactions.handle,
        ApiKey.LIST_TRANSACTIONS: k66_list_transactions.handle,
    }
