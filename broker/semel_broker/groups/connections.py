"""PURE: the newest connection of each member of a group, which shows that a request is late.

A client that gives up a request closes the connection, and sends the request again over a newer one. The first request
can still arrive later. It comes over a connection that is older than the newest one of its member.

The broker's process numbers its connections. So `MemberConnections` belongs to the broker, and not to a shard or a
group in memory. A shard ends when the leadership of its partition moves. But the same broker may lead the partition
again while the late request is on its way.
"""

from __future__ import annotations

from typing import Final

from semel_broker.answers import CloseConnectionError
from semel_broker.coordination.lru_table import LruTable

MEMBERS_MAX: Final = 100_000
"""The members that are remembered. A late request of a member that is forgotten is not noticed."""


class NewestConnections:
    """The newest connection of each member, for requests of one kind. `connection`: its number; 0 if it does not
    matter."""

    def __init__(self) -> None:
        self._newest: LruTable[tuple[str, str], int] = LruTable(MEMBERS_MAX)  # by group id and member id

    def check(self, group_id: str, member_id: str, connection: int) -> None:
        """Raise CloseConnectionError: the member has used a newer connection."""
        if 0 < connection < (self._newest.get((group_id, member_id)) or 0):
            raise CloseConnectionError("stale_connection", member=member_id)

    def note(self, group_id: str, member_id: str, connection: int) -> None:
        """Remember that the member has used this connection. Call it for members of the group only."""
        assert connection >= 0, connection
        key = group_id, member_id
        newest = max(connection, self._newest.get(key) or 0)
        if newest:
            self._newest.put(key, newest)


class MemberConnections:
    """The connections of the members of all groups on this broker. `commits`: for OffsetCommit. `heartbeats`: for
    ConsumerGroupHeartbeat."""

    def __init__(self) -> None:
        self.commits = NewestConnections()
        self.heartbeats = NewestConnections()
