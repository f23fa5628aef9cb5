"""PURE. One broker as the Sender sees it: the partitions it leads that have something to send, what is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from semel._net.connection import Connection
from semel._produce.accumulator import PartitionQueue

NO_LEADER = -1
"""The node id of no broker: what nobody leads at the moment is listed there."""


def any_batch_unreachable(nodes: Mapping[int, Node]) -> bool:
    """Whether something waits for a node that is away."""
    return any(node.is_unreachable and (node.ready or node.partial) for node in nodes.values())


class Node:
    """ready: to be sent as soon as a request is free. partial: their only batch still has room.

    connecting: what has to happen before anything is sent, a connection or its peer reading on. is_unreachable: it cannot be
    sent to at the moment, as there is no connection, or no leader.
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
        """Lists a queue that has something to send where it belongs."""
        if queue.is_due:
            self.partial.pop(queue, None)
            self.ready[queue] = None
        elif queue not in self.ready:
            self.partial[queue] = None

    def remove(self, queue: PartitionQueue) -> None:
        """The queue is not to be sent, or not here."""
        self.ready.pop(queue, None)
        self.partial.pop(queue, None)

    def send_partial(self) -> None:
        """What still has room is sent as well."""
        self.ready.update(self.partial)
        self.partial.clear()
