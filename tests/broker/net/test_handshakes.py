"""Bounds of TLS handshakes in progress."""

from __future__ import annotations

import pytest
from semel_broker.net.handshakes import Handshakes
from semel_broker.security.networks import network_of


class StartedHandshake:
    """A handshake."""

    def __init__(self, active_at: float = 0) -> None:
        self.active_at = active_at
        self.refused = ""

    def refuse(self, reason: str) -> None:
        self.refused = reason


def test_the_oldest_stalled_handshake_of_the_address_makes_room() -> None:
    handshakes, first, second, other = (
        Handshakes(4, 2, 1_000),
        StartedHandshake(5),
        StartedHandshake(4),
        StartedHandshake(0),
    )
    for one, host in ((other, "b"), (first, "a"), (second, "a")):
        assert handshakes.admit(one, host, 6.0)
    assert handshakes.admit(StartedHandshake(6), "a", 6.0)
    assert (first.refused, second.refused, other.refused) == ("handshake_stalled", "", "")
    assert len(handshakes) == 3


def test_a_new_handshake_is_refused_while_all_make_progress() -> None:
    handshakes = Handshakes(4, 2, 1_000)
    assert handshakes.admit(StartedHandshake(5.5), "a", 6.0)
    assert handshakes.admit(StartedHandshake(5.5), "a", 6.0)
    assert not handshakes.admit(StartedHandshake(6.0), "a", 6.0)
    assert handshakes.admit(StartedHandshake(6.0), "b", 6.0)


def test_one_address_cannot_take_all() -> None:
    handshakes = Handshakes(4, 2, 1_000)
    ones = [StartedHandshake(0) for _ in range(4)]
    for number, one in enumerate(ones):
        assert handshakes.admit(one, f"10.0.0.{number}", 0.0)
    assert not handshakes.admit(StartedHandshake(0), "10.0.0.9", 0.5)
    assert handshakes.admit(StartedHandshake(1), "10.0.0.9", 1.0)
    assert ones[0].refused == "handshake_stalled"


def test_an_ended_handshake_makes_room_once() -> None:
    handshakes, one = Handshakes(4, 2, 1_000), StartedHandshake()
    handshakes.admit(one, "a", 0.0)
    handshakes.ended(one)
    handshakes.ended(one)
    assert len(handshakes) == 0
    assert handshakes.snapshot() == []


@pytest.mark.proves("unauthenticated-clients")
@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("?", "?", True),
    ],
)
def test_addresses_of_one_network_are_one_client(one: str, other: str, *, are_same: bool) -> None:
    assert (network_of(one) == network_of(other)) is are_same
