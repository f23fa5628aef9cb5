"""PURE: the quotas in force, and which of them holds for a client.

The first of these that has a value for the quota (Kafka's order):

1. user and client id
2. user and default client id
3. user
4. default user and client id
5. default user and default client id
6. default user
7. client id
8. default client id

Clients share one rate if their quota does not name the part in which they differ: all client ids of a user, with a
quota for the user. Each user or client id has a rate of its own under a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from semel_protocol.quotas import CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity

from semel_broker.security.networks import network_of

CACHED_MAX = 10_000
"""Cached lookups. A full cache is dropped: clients with ever new client ids must not fill the memory."""


class Bound(msgspec.Struct, frozen=True, gc=False):
    """The quota of a client. `user`, `client_id`: those that share the rate; None: all."""

    value: float
    user: str | None
    client_id: str | None


class QuotaTable:
    """`keys`: the quotas that exist, for any entity."""

    def __init__(self) -> None:
        self._values: dict[QuotaEntity, Mapping[str, float]] = {}
        self._cache: dict[tuple[str, str, str], Bound | None] = {}
        self.keys: frozenset[str] = frozenset()

    def items(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """All entities and their quotas."""
        return iter(self._values.items())

    def __len__(self) -> int:
        return len(self._values)

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        """The quotas of exactly this entity."""
        return self._values.get(entity, {})

    def change(self, changes: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace the quotas of entities; none: remove the entity."""
        for entity, values in changes.items():
            if values:
                self._values[entity] = values
            else:
                self._values.pop(entity, None)
        self.keys = frozenset(key for values in self._values.values() for key in values)
        self._cache.clear()

    def bound(self, key: str, user: str, client_id: str) -> Bound | None:
        """The quota of a client; None: it has none."""
        place = (key, user, client_id)
        try:
            return self._cache[place]
        except KeyError:
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            found = self._cache[place] = self._bound(key, user, client_id)
            return found

    def connection_rate(self, ip: str) -> tuple[str, float] | None:
        """The connections in a second that an address may open, and which addresses share them: the address itself
        if it has a quota of its own, else its network. None: any number."""
        value = self.of(QuotaEntity(ip=ip)).get(CONNECTION_CREATION_RATE)
        if value is not None:
            return ip, value
        value = self.of(QuotaEntity(ip=DEFAULT)).get(CONNECTION_CREATION_RATE)
        return None if value is None else (network_of(ip), value)

    def _bound(self, key: str, user: str, client_id: str) -> Bound | None:
        for entity in (
            QuotaEntity(user=user, client_id=client_id),
            QuotaEntity(user=user, client_id=DEFAULT),
            QuotaEntity(user=user),
            QuotaEntity(user=DEFAULT, client_id=client_id),
            QuotaEntity(user=DEFAULT, client_id=DEFAULT),
            QuotaEntity(user=DEFAULT),
            QuotaEntity(client_id=client_id),
            QuotaEntity(client_id=DEFAULT),
        ):
            value = self.of(entity).get(key)
            if value is not None:
                return Bound(
                    value, None if entity.user is None else user, None if entity.client_id is None else client_id
                )
        return None
