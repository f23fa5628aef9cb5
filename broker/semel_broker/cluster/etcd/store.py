"""The store of a cluster over etcd, version 3.4 or later.

Reads are linearizable. A failed read is repeated at the next endpoint, until it is answered or `request_timeout_ms` has
passed. A transaction is repeated only if etcd cannot have executed it. A transaction that was sent and not answered
raises OutcomeUnknownError. If it were sent again, its own first execution could make its conditions fail.

etcd keeps old revisions until it is compacted; run it with `--auto-compaction-retention`. It refuses transactions of
more than 128 changes or 1.5 MiB (`--max-txn-ops`, `--max-request-bytes`).
"""

from __future__ import annotations

import math
from asyncio import Event, get_running_loop, sleep
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from semel_broker.cluster.etcd import messages as etcd
from semel_broker.cluster.etcd.gateway import EtcdRefusedError, Gateway, NotSentError, UnansweredError
from semel_broker.cluster.etcd.login import EtcdLogin
from semel_broker.cluster.etcd.messages import Keys
from semel_broker.cluster.etcd.session import EtcdSession
from semel_broker.cluster.etcd.tls import EtcdTls
from semel_broker.cluster.etcd.watch import EtcdWatch
from semel_broker.cluster.store import (
    CHANGES_MAX,
    Change,
    Expect,
    Listing,
    OutcomeUnknownError,
    Put,
    SessionEndedError,
    StoreClosedError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
    last_of_each_key,
)
from semel_broker.world import World

Answer = TypeVar("Answer")

ATTEMPT_TIMEOUT_MS: Final = 2_000
"""Time for one endpoint to answer a request that can be repeated at the next one."""

# gRPC's status codes
_DEADLINE_EXCEEDED: Final = 4
_NOT_FOUND: Final = 5
_UNKNOWN: Final = 2
_INTERNAL: Final = 13
_UNAVAILABLE: Final = 14

NOT_STARTED: Final = ("etcdserver: no leader", "etcdserver: too many requests")
"""First words of etcd's messages for a request that it has not begun to execute. The request can be repeated."""
OUTCOME_UNKNOWN: Final = (_UNKNOWN, _DEADLINE_EXCEEDED, _INTERNAL, _UNAVAILABLE)
"""Status codes after which etcd may have executed the request, or may execute it later."""
FULL: Final = "database space exceeded"


class EtcdStore:
    """`Store` over the members of one etcd cluster, given as URLs (`http://10.0.0.1:2379`). Raises ValueError.

    `namespace`: the prefix of all keys, one for each semel cluster. `tls`: needed for https endpoints.
    `login`: needed if etcd has users.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        namespace: str,
        world: World,
        tls: EtcdTls | None = None,
        login: EtcdLogin | None = None,
        request_timeout_ms: float = 5_000,
    ) -> None:
        self._gateway = Gateway(endpoints, tls, login)
        self._keys = Keys(namespace)
        self._world = world
        self._request_timeout_ms = request_timeout_ms
        self._watches: list[EtcdWatch] = []
        self._heard = 0  # etcd's revision at the last keep-alive
        self._is_closed = False
        self._requests_under_way = 0
        self._is_idle = Event()

    async def get(self, key: str) -> StoreEntry | None:
        """The entry of `key`, or None."""
        answer = await self._read("/v3/kv/range", etcd.RangeRequest(self._keys.pack(key)), _range)
        return self._entry(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str) -> Listing:
        """All entries whose key starts with `prefix`, in key order."""
        answer = await self._read("/v3/kv/range", etcd.RangeRequest(*self._keys.range(prefix)), _range)
        return Listing(tuple(self._entry(kv) for kv in answer.kvs), answer.header.revision)

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """Apply all of `changes` if all of `expects` hold; see `Store`."""
        assert len(expects) <= CHANGES_MAX, f"{len(expects)} expectations in one transaction, {CHANGES_MAX} at most"
        request = etcd.TxnRequest(
            [etcd.Compare(self._keys.pack(expect.key), expect.revision) for expect in expects],
            [self._operation(change) for change in last_of_each_key(changes)],
        )
        try:
            answer = await self._ask("/v3/kv/txn", request, _txn, self._request_timeout_ms, is_repeatable=False)
        except EtcdRefusedError as error:
            if error.code == _NOT_FOUND:
                raise SessionEndedError(f"{error}: its session has ended; open a new one") from error
            raise _refusal(error) from error
        return answer.header.revision if answer.succeeded else None

    def watch(self, prefix: str, revision: int) -> EtcdWatch:
        """The changes under `prefix` after `revision`; see `Store`."""
        self._check_open()
        watch = EtcdWatch(self._gateway, self._keys, self._world, prefix, revision)
        self._watches = [each for each in self._watches if not each.is_over]
        self._watches.append(watch)
        return watch

    async def open_session(self, ttl_ms: int) -> EtcdSession:
        """A session with a lease of `ttl_ms`, rounded up to seconds. etcd grants no less than its election timeout."""
        asked_at = self._world.monotonic()
        grant = etcd.LeaseGrantRequest(math.ceil(ttl_ms / 1000))
        lease = await self._read("/v3/lease/grant", grant, _lease)  # a lost lease expires by itself
        if self._world.monotonic() >= asked_at + lease.ttl_s:
            raise StoreUnavailableError(f"the lease of {lease.ttl_s} s had expired before its grant was received")
        return EtcdSession(
            self._world,
            lease=lease.lease,
            ttl_s=lease.ttl_s,
            granted_at=asked_at,
            keep_alive=self._keep_alive,
            revoke=self._revoke,
        )

    async def close(self) -> None:
        """Wait for the requests that are under way, and close the connections. Watches raise StoreClosedError."""
        if self._is_closed:
            return
        self._is_closed = True
        for watch in self._watches:
            if not watch.is_over:
                await watch.store_closed()
        if self._requests_under_way:
            self._is_idle.clear()
            await self._is_idle.wait()
        self._gateway.close()

    async def _keep_alive(self, lease: int, timeout_ms: float) -> int:
        request = etcd.LeaseRequest(lease)
        try:
            line = await self._ask("/v3/lease/keepalive", request, _keep_alive, timeout_ms, is_repeatable=True)
        except EtcdRefusedError as error:
            raise _refusal(error) from error
        if line.result is None:
            message = line.error.message if line.error else "neither result nor error"
            raise StoreUnavailableError(f"etcd did not keep the lease alive: {message}")
        for watch in self._watches:
            watch.keep_up(self._heard)  # of the keep-alive before: the changes have had time to arrive
        self._heard = line.result.header.revision
        return line.result.ttl_s

    async def _revoke(self, lease: int) -> None:
        try:
            await self._ask(
                "/v3/lease/revoke", etcd.LeaseRequest(lease), _nothing, self._request_timeout_ms, is_repeatable=True
            )
        except EtcdRefusedError as error:
            if error.code != _NOT_FOUND:  # a lease that does not exist is revoked
                raise _refusal(error) from error

    async def _read(self, path: str, request: etcd.EtcdMessage, answer: msgspec.json.Decoder[Answer]) -> Answer:
        try:
            return await self._ask(path, request, answer, self._request_timeout_ms, is_repeatable=True)
        except EtcdRefusedError as error:
            raise _refusal(error) from error

    async def _ask(
        self,
        path: str,
        request: etcd.EtcdMessage,
        answer: msgspec.json.Decoder[Answer],
        timeout_ms: float,
        *,
        is_repeatable: bool,
    ) -> Answer:
        """Repeat a request until it is answered. Raises EtcdRefusedError and the errors of `Store`."""
        self._check_open()
        self._requests_under_way += 1
        try:
            return await self._repeat(path, msgspec.json.encode(request), answer, timeout_ms, is_repeatable)
        finally:
            self._requests_under_way -= 1
            if not self._requests_under_way:
                self._is_idle.set()

    async def _repeat(
        self, path: str, body: bytes, answer: msgspec.json.Decoder[Answer], timeout_ms: float, is_repeatable: bool
    ) -> Answer:
        time = get_running_loop().time
        deadline = time() + timeout_ms / 1000
        backoff = self._gateway.backoff(self._world.rng)
        reason: Exception | None = None
        while True:
            left_ms = (deadline - time()) * 1000
            endpoint = self._gateway.endpoint
            error: Exception
            try:
                attempt_ms = min(left_ms, ATTEMPT_TIMEOUT_MS) if is_repeatable else left_ms
                return answer.decode(await self._gateway.call(path, body, attempt_ms))
            except NotSentError as failure:
                error, may_be_done = failure, False
            except (UnansweredError, msgspec.DecodeError) as failure:
                error, may_be_done = failure, True
            except EtcdRefusedError as failure:
                error, may_be_done = failure, not str(failure).startswith(NOT_STARTED)
                if may_be_done and failure.code not in OUTCOME_UNKNOWN:
                    raise
            self._gateway.leave(endpoint)
            if may_be_done and not is_repeatable:
                raise OutcomeUnknownError(f"a transaction was sent to etcd, which did not answer: {error}") from error
            if reason is None or not isinstance(error.__cause__, TimeoutError):
                reason = error  # the last attempt may fail only because little time is left
            pause_s = backoff.next_ms() / 1000
            if self._is_closed or time() + pause_s >= deadline:
                raise StoreUnavailableError(
                    f"no etcd answered within {timeout_ms:.0f} ms; the last error: {reason}"
                ) from error
            await sleep(pause_s)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError("the store was closed")

    def _entry(self, kv: etcd.KeyValue) -> StoreEntry:
        return StoreEntry(self._keys.unpack(kv.key), kv.value, kv.mod_revision)

    def _operation(self, change: Change) -> etcd.RequestOp:
        key = self._keys.pack(change.key)
        if isinstance(change, Put):
            return etcd.RequestOp(request_put=etcd.PutRequest(key, change.value, change.lease))
        return etcd.RequestOp(request_delete_range=etcd.DeleteRangeRequest(key))


_range = msgspec.json.Decoder(etcd.RangeResponse, strict=False)
_txn = msgspec.json.Decoder(etcd.TxnResponse, strict=False)
_lease = msgspec.json.Decoder(etcd.LeaseResponse, strict=False)
_keep_alive = msgspec.json.Decoder(etcd.KeepAliveLine, strict=False)
_nothing = msgspec.json.Decoder(etcd.Nothing, strict=False)


def _refusal(error: EtcdRefusedError) -> StoreError:
    if FULL in str(error):
        return StoreError(f"etcd is full ({error}): compact and defragment it, or raise --quota-backend-bytes")
    return StoreError(f"etcd refused: {error} (gRPC code {error.code})")
