"""PURE: bounds the handshakes in progress, of TLS or SASL: in all, and by the address of the client.

Clients that connect and stay silent must not use up the handshakes of the others. At a bound the oldest handshake that
makes no progress is closed for the new one.
"""

from __future__ import annotations

from typing import Protocol

from semel_broker.security.networks import network_of


class Handshake(Protocol):
    """A handshake in progress. `active_at`: the time of its last received byte, in seconds of the loop."""

    @property
    def active_at(self) -> float: ...

    def refuse(self, reason: str) -> None:
        """Close its connection."""


class Handshakes:
    """The handshakes in progress, the oldest first.

    At most `count_max`, and `per_address_max` of one IPv4 address or IPv6 network (/64). One without progress for
    `stalled_ms` is refused for another one, for the reason `stalled`.
    """

    def __init__(
        self, count_max: int, per_address_max: int, stalled_ms: int, stalled: str = "handshake_stalled"
    ) -> None:
        self._count_max, self._per_address_max = count_max, per_address_max
        self._stalled_s, self._stalled = stalled_ms / 1000, stalled
        self._by_network: dict[str, dict[Handshake, None]] = {}
        self._all: dict[Handshake, str] = {}

    def __len__(self) -> int:
        return len(self._all)

    def snapshot(self) -> list[Handshake]:
        """All handshakes, the oldest first."""
        return list(self._all)

    def admit(self, handshake: Handshake, host: str, now: float) -> bool:
        """Add a handshake. At a bound a stalled one is refused for it; False: none is stalled, refuse the new one."""
        network = network_of(host)
        own = self._by_network.get(network, {})
        if len(own) >= self._per_address_max and not self._make_room(own, now):
            return False
        if len(self._all) >= self._count_max and not self._make_room(self._all, now):
            return False
        self._all[handshake] = network
        self._by_network.setdefault(network, {})[handshake] = None
        return True

    def ended(self, handshake: Handshake) -> None:
        """Remove a handshake that is complete or has failed. Calling it again has no effect."""
        network = self._all.pop(handshake, None)
        if network is None:
            return
        own = self._by_network[network]
        del own[handshake]
        if not own:
            del self._by_network[network]

    def _make_room(self, among: dict[Handshake, None] | dict[Handshake, str], now: float) -> bool:
        stalled = next((each for each in among if now - each.active_at >= self._stalled_s), None)
        if stalled is None:
            return False
        self.ended(stalled)
        stalled.refuse(self._stalled)
        return True
