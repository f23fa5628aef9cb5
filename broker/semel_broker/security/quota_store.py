"""The quotas of the cluster: kept in its store, and followed by every broker.

A change is answered when it is in force on this broker. The other brokers follow the store. There it is in force a
moment later, on open connections too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import QuotaEntity, QuotaFilter

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta, StoredValue
from semel_broker.cluster.records import QuotaRecord, quota_key, quota_record
from semel_broker.cluster.store import Change, Expect, Put, Store
from semel_broker.cluster.writes import catch_up, creating, removing, stays_absent, stays_as_is, write
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.security.quotas.validation import edited
from semel_broker.world import Logger

TRIES = 10
ENTITIES_MAX = 10_000
"""Entities with quotas in a cluster."""


class QuotaStore:
    """One per broker. `quotas`: those in force."""

    def __init__(self, store: Store, feed: Feed, quotas: ClientQuotas, log: Logger) -> None:
        self.quotas = quotas
        self._store, self._feed, self._log = store, feed, log
        self._followed: dict[str, QuotaEntity] = {}  # by key
        feed.listeners.append(self._follow)
        self._take(feed.image.quotas)

    def find(self, wanted: QuotaFilter) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """The entities that the filter selects and their quotas, in order."""
        found = [(entity, values) for entity, values in self.quotas.table.items() if wanted.matches(entity)]
        return sorted(found, key=lambda each: each[0].order)

    async def alter(
        self, entity: QuotaEntity, ops: Sequence[tuple[str, float, bool]], *, validate_only: bool = False
    ) -> None:
        """Change quotas of an entity: key, value, whether to remove it.

        Raises INVALID_REQUEST, POLICY_VIOLATION for one entity too many, REQUEST_TIMED_OUT.
        """
        key = quota_key(entity)
        is_settled = False
        for _ in range(TRIES):
            stored = self._feed.image.quotas.get(key)
            before = {} if stored is None else stored.value.values
            after = edited(entity, before, ops)
            is_one_too_many = stored is None and bool(after) and len(self.quotas.table) >= ENTITIES_MAX
            if not is_settled and (is_one_too_many or after == before):  # perhaps not so on the other brokers
                is_settled = await self._settle(key, stored, validate_only=validate_only)
                continue
            if is_one_too_many:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"there are {ENTITIES_MAX} entities with quotas already; use defaults"
                )
            if validate_only or after == before:
                return
            expects = creating(self._feed, key) if stored is None else [Expect(key, stored.revision)]
            changes: list[Change] = [Put(key, quota_record(entity, after))] if after else removing(key)
            if await write(self._store, self._feed, expects, changes):
                return
            is_settled = False
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quotas change all the time: try again")

    async def _settle(self, key: str, stored: StoredValue[QuotaRecord] | None, *, validate_only: bool) -> bool:
        """Bring the image up to date, and let changes fail that the store applies later. Returns whether the entity is
        still as `stored`. Raises REQUEST_TIMED_OUT."""
        if validate_only:
            await catch_up(self._feed)
            return True
        if stored is not None:
            value = msgspec.json.encode(stored.value)
            return await stays_as_is(self._store, self._feed, key, value, stored.revision)
        await stays_absent(self._store, self._feed, key)
        return key not in self._feed.image.quotas

    def _follow(self, delta: ImageDelta) -> None:
        if delta.quotas:
            self._take(delta.quotas)
            self._log.info("quotas_changed", changed=len(delta.quotas), entities=len(self.quotas.table))

    def _take(self, keys: Iterable[str]) -> None:
        """Put in force what the image says of these keys."""
        changes: dict[QuotaEntity, Mapping[str, float]] = {}
        for key in keys:
            stored = self._feed.image.quotas.get(key)
            if (before := self._followed.pop(key, None)) is not None:
                changes[before] = {}
            if stored is not None:
                entity = stored.value.entity
                self._followed[key] = entity
                changes[entity] = stored.value.values
        self.quotas.table.change(changes)
        self.quotas.changed()
