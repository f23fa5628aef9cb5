"""The state of an etcd: keys with revisions, recent changes, leases. It has no network and never waits.

It implements the part of etcd's v3 API that `semel_broker.cluster.etcd.store` uses, with its messages. The state lives
as long as the object, over all restarts of the simulated etcd.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from semel_broker.cluster.etcd.messages import (
    EtcdEvent,
    Header,
    KeyValue,
    LeaseResponse,
    RangeRequest,
    RangeResponse,
    TxnRequest,
    TxnResponse,
)

LEASE_NOT_FOUND = (5, "etcdserver: requested lease not found")
COMPACTED = (11, "etcdserver: mvcc: required revision has been compacted")


class EtcdError(Exception):
    """An error of etcd: a gRPC code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class EtcdLease(msgspec.Struct):
    """`expires_at`: seconds by the clock of etcd's machine."""

    ttl_s: int
    expires_at: float
    keys: dict[bytes, None] = {}


class Etcd:
    """`keeps`: for how many transactions the changes are kept for watches. `compact` discards changes at once."""

    def __init__(self, keeps: int = 1_000) -> None:
        self.keeps = keeps
        self.revision = 1
        self.compacted = 0
        """A watch cannot begin at this revision or an earlier one."""
        self.leases: dict[int, EtcdLease] = {}
        self.facts: list[EtcdEvent] = []
        """All changes since the start, for checkers."""
        self._keys: dict[bytes, KeyValue] = {}
        self._lease_of: dict[bytes, int] = {}
        self._history: list[tuple[int, list[EtcdEvent]]] = []
        self._leases_granted = 0

    @property
    def header(self) -> Header:
        return Header(self.revision)

    def revision_of(self, key: bytes) -> int:
        """The revision of a key's last change; 0 if the key does not exist."""
        there = self._keys.get(key)
        return 0 if there is None else there.mod_revision

    def value_of(self, key: bytes) -> bytes:
        """The value of a key; empty if the key does not exist."""
        there = self._keys.get(key)
        return b"" if there is None else there.value

    def range(self, request: RangeRequest) -> RangeResponse:
        """The keys and values of a range."""
        if not request.range_end:
            found = [self._keys[request.key]] if request.key in self._keys else []
        else:
            found = [kv for key, kv in sorted(self._keys.items()) if request.key <= key < request.range_end]
        return RangeResponse(self.header, found)

    def txn(self, request: TxnRequest) -> TxnResponse:
        """Carry out a transaction, whole or not at all. Raises EtcdError."""
        for compare in request.compare:
            assert (compare.target, compare.result) == ("MOD", "EQUAL"), compare
            if self.revision_of(compare.key) != compare.mod_revision:
                return TxnResponse(self.header)
        puts = [op.request_put for op in request.success if op.request_put is not None]
        if any(put.lease and put.lease not in self.leases for put in puts):
            raise EtcdError(*LEASE_NOT_FOUND)
        revision, events = self.revision + 1, []
        for op in request.success:
            if op.request_put is not None:
                put = op.request_put
                self._let_go(put.key)
                self._keys[put.key] = kv = KeyValue(put.key, put.value, revision)
                if put.lease:
                    self.leases[put.lease].keys[put.key] = None
                    self._lease_of[put.key] = put.lease
                events.append(EtcdEvent(kv))
            elif op.request_delete_range is not None and op.request_delete_range.key in self._keys:
                events.append(self._removed(op.request_delete_range.key, revision))
        self._written(events)
        return TxnResponse(self.header, succeeded=True)

    def changes(self, key: bytes, range_end: bytes, start_revision: int) -> tuple[list[EtcdEvent], int]:
        """The events in a range from a revision on, oldest first, and the revision for the next call.

        Raises EtcdError if some of them are compacted.
        """
        if start_revision <= self.compacted:
            raise EtcdError(*COMPACTED)
        first = start_revision - (self.revision + 1 - len(self._history))  # one transaction for each revision
        events = [
            event
            for _, changed in self._history[max(0, first) :]
            for event in changed
            if key <= event.kv.key < range_end
        ]
        return events, max(start_revision, self.revision + 1)

    def compact(self, revision: int) -> None:
        """Discard the changes up to this revision."""
        self.compacted = max(self.compacted, min(revision, self.revision))
        self._history = [each for each in self._history if each[0] > self.compacted]

    def grant(self, ttl_s: int, now: float) -> LeaseResponse:
        """Grant a lease."""
        self._leases_granted += 1
        self.leases[self._leases_granted] = EtcdLease(ttl_s, now + ttl_s)
        return LeaseResponse(self._leases_granted, ttl_s)

    def keep_alive(self, number: int, now: float) -> LeaseResponse:
        """Give a lease its whole lifetime again. The answer has a lifetime of 0 if the lease has ended."""
        lease = self.leases.get(number)
        if lease is None:
            return LeaseResponse(number, header=self.header)
        lease.expires_at = now + lease.ttl_s
        return LeaseResponse(number, lease.ttl_s, self.header)

    def revoke(self, number: int) -> None:
        """End a lease and remove its keys, in one transaction. Raises EtcdError."""
        lease = self.leases.pop(number, None)
        if lease is None:
            raise EtcdError(*LEASE_NOT_FOUND)
        revision = self.revision + 1
        self._written([self._removed(key, revision) for key in sorted(lease.keys)])

    def expired(self, now: float) -> Iterator[int]:
        """The leases that have expired."""
        for number, lease in list(self.leases.items()):
            if lease.expires_at <= now:
                yield number

    def elected(self, now: float) -> None:
        """A new leader of etcd gives every lease its whole lifetime again."""
        for lease in self.leases.values():
            lease.expires_at = now + lease.ttl_s

    def _written(self, events: list[EtcdEvent]) -> None:
        if not events:
            return
        self.revision += 1
        self.facts += events
        self._history.append((self.revision, events))
        if len(self._history) > self.keeps:
            self.compact(self._history[0][0])

    def _removed(self, key: bytes, revision: int) -> EtcdEvent:
        self._let_go(key)
        del self._keys[key]
        return EtcdEvent(KeyValue(key, b"", revision), "DELETE")

    def _let_go(self, key: bytes) -> None:
        """Detach a key from its lease."""
        number = self._lease_of.pop(key, 0)
        if number in self.leases:
            del self.leases[number].keys[key]
