"""The newest connection of each member."""

from __future__ import annotations

import pytest
from semel_broker.answers import CloseConnectionError
from semel_broker.groups.connections import NewestConnections


def test_a_connection_is_refused_only_if_the_member_has_used_a_newer_one() -> None:
    newest = NewestConnections()
    newest.check("g", "a", 5)
    newest.note("g", "a", 5)
    newest.note("g", "a", 3)  # its request was handled at the same time
    for connection in (5, 6, 0):
        newest.check("g", "a", connection)
    newest.check("g", "b", 4)
    newest.check("h", "a", 4)
    with pytest.raises(CloseConnectionError):
        newest.check("g", "a", 4)
