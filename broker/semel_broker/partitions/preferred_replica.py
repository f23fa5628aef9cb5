"""PURE: the replica that a consumer should fetch from, because it is nearer than the leader (KIP-392).

As Kafka's RackAwareReplicaSelector: a replica in the rack of the consumer, in sync, with the offset that is asked for;
of several the one with the most records. The leader itself, if it is in that rack, or if no follower fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from semel_broker.partitions.replicas import Replicas

LEADER: Final = -1
"""`preferred_read_replica` of an answer that has records, or no nearer replica to name."""


def preferred_replica(replicas: Replicas, racks: Mapping[int, str], rack: str, offset: int) -> int:
    """The broker id of a follower to fetch from at `offset`, or LEADER.

    racks: broker id -> rack, of the brokers that consumers can reach now.
    """
    if not rack or racks.get(replicas.me) == rack:
        return LEADER
    offsets = replicas.offsets
    near = [each for each in replicas.isr if racks.get(each) == rack and offsets.get(each, -1) >= offset]
    return max(near, key=lambda each: (offsets[each], -each), default=LEADER)
