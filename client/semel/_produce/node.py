"""PURE. One broker as the Sender sees it: the partitions it leads that have data to send, and its open requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from semel._net.connection import Connection
from semel._produce.accumulator import PartitionQueue

NO_LEADER = -1
"""The node id that stands for no broker: partitions without a leader are listed under it."""


def any_batch_unreachable(nodes: Mapping[int, LeaderQueue]) -> bool:
    """Whether data waits for a node that cannot be sent to."""
    return any(node.is_unreachable and (node.ready or node.partial) for node in nodes.values())


class LeaderQueue:
    """The partitions of one leader that have data to send.

    ready: partitions to send as soon as a request is free.
    partial: partitions whose only batch still has room.
    connecting: a task to wait for before anything is sent: the connection, or a peer that does not read.
    is_unreachable: nothing can be sent now, because there is no connection or no leader.
    """

    __slots__ = ("connecting", "in_flight", "is_unreachable", "node_id", "partial", "ready")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.in_flight = 0
        self.connecting: asyncio.Task[Connection] | None = None
        self.is_unreachable = node_id == NO_LEADER
        self.ready: dict[PartitionQueue, None] = {}
        self.partial: dict[PartitionQueue, None] = {}

    def place(self, queue: PartitionQueue) -> None:
        """List a queue with data as ready or partial."""
        if queue.is_due:
            self.partial.pop(queue, None)
            self.ready[queue] = None
        elif queue not in self.ready:
            self.partial[queue] = None

    def remove(self, queue: PartitionQueue) -> None:
        """Remove a queue that must not be sent, or not by this node."""
        self.ready.pop(queue, None)
        self.partial.pop(queue, None)

    def send_partial(self) -> None:
        """Make partial queues ready."""
        self.ready.update(self.partial)
        self.partial.clear()
