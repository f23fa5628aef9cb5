"""PURE: the newest connection of each client of a coordinator, which tells a late request from the others.

A client that gives up a request closes the connection, and asks again over a newer one. The first request may arrive
later nevertheless. It comes over a connection older than the newest that its client has used.

Connections are numbered by the broker's process. So their numbers are kept here, and not in a shard, which ends when
the leadership of its partition moves: the same broker may lead the partition again while the late request is on its
way. Another broker has other connections.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from semel_broker.answers import CloseConnectionError

K = TypeVar("K")
V = TypeVar("V")

CLIENTS_MAX: Final = 100_000
"""Of each coordinator. A late request of a client that was not heard of for longest is not recognised."""


class RecentClients(Generic[K, V]):
    """Values by client, for the `size_max` clients whose values were set last."""

    def __init__(self, size_max: int = CLIENTS_MAX) -> None:
        self._size_max = size_max
        self._values: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, client: K) -> V | None:
        """The value of this client; None: it has none, or it was not set for a long time."""
        return self._values.get(client)

    def put(self, client: K, value: V) -> None:
        """Set the value of a client."""
        self._values.pop(client, None)
        self._values[client] = value
        if len(self._values) > self._size_max:
            del self._values[next(iter(self._values))]


class NewestConnections:
    """The newest connection of each member of a group, by (group id, member id), for requests of one kind."""

    def __init__(self, size_max: int = CLIENTS_MAX) -> None:
        self._newest: RecentClients[tuple[str, str], int] = RecentClients(size_max)

    def check(self, group_id: str, member_id: str, connection: int) -> None:
        """Raises CloseConnectionError: the member has a newer connection. `connection`: 0 if it does not matter."""
        if 0 < connection < (self._newest.get((group_id, member_id)) or 0):
            raise CloseConnectionError("stale_connection", member=member_id)

    def note(self, group_id: str, member_id: str, connection: int) -> None:
        """The member, which must be one of the group, has sent a request over this connection."""
        key = group_id, member_id
        newest = max(connection, self._newest.get(key) or 0)
        if newest:
            self._newest.put(key, newest)
