"""The newest connection of each client, and how many clients are remembered."""

from __future__ import annotations

import pytest
from semel_broker.answers import CloseConnectionError
from semel_broker.coordination.connections import NewestConnections, RecentClients


def test_only_older_connections_than_the_newest_are_refused() -> None:
    newest = NewestConnections()
    newest.check("g", "a", 5)
    newest.note("g", "a", 5)
    newest.note("g", "a", 3)  # it was on its way at the same time
    for connection in (5, 6, 0):
        newest.check("g", "a", connection)
    newest.check("g", "b", 4)
    newest.check("h", "a", 4)
    with pytest.raises(CloseConnectionError):
        newest.check("g", "a", 4)


def test_the_client_that_was_not_heard_of_for_longest_is_forgotten() -> None:
    recent: RecentClients[str, int] = RecentClients(2)
    for client in "aba":
        recent.put(client, 1)
    recent.put("c", 1)
    assert [recent.get(client) for client in "abc"] == [1, None, 1]
    assert len(recent) == 2


def test_a_request_over_no_connection_takes_no_memory() -> None:
    newest = NewestConnections()
    newest.note("g", "a", 0)
    assert len(newest._newest) == 0
