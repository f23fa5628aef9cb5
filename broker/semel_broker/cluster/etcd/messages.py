"""PURE: the messages of etcd's v3 API that semel uses, as the JSON gateway writes them.

Names are those of etcd's protocol definition (rpc.proto). Bytes are base64. 64-bit integers are received as strings and
may be sent as numbers. Both sides leave out a field that has its default value.
"""

from __future__ import annotations

import msgspec


class EtcdMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all messages. Unknown fields are skipped."""


class Header(EtcdMessage, frozen=True):
    """Part of every response: the revision of the store at that moment."""

    revision: int = 0


class KeyValue(EtcdMessage, frozen=True):
    """A key and its value; in an event, after the change. A removed key has no value."""

    key: bytes = b""
    value: bytes = b""
    mod_revision: int = 0


class RangeRequest(EtcdMessage, frozen=True):
    """Read `key`, or all keys from `key` up to, not including, `range_end`. Linearizable."""

    key: bytes
    range_end: bytes = b""


class RangeResponse(EtcdMessage, frozen=True):
    """The entries, in the order of their keys."""

    header: Header
    kvs: list[KeyValue] = []


class Compare(msgspec.Struct, frozen=True):
    """The condition that `key` was last written at `mod_revision`; 0: that it does not exist."""

    key: bytes
    mod_revision: int
    target: str = "MOD"
    result: str = "EQUAL"


class PutRequest(EtcdMessage, frozen=True):
    """Write a key. `lease` 0: no lease."""

    key: bytes
    value: bytes
    lease: int = 0


class DeleteRangeRequest(EtcdMessage, frozen=True):
    """Remove one key."""

    key: bytes


class RequestOp(EtcdMessage, frozen=True):
    """One operation: exactly one of the fields is set."""

    request_put: PutRequest | None = None
    request_delete_range: DeleteRangeRequest | None = None


class TxnRequest(EtcdMessage, frozen=True):
    """Do all of `success` if all of `compare` hold."""

    compare: list[Compare]
    success: list[RequestOp]


class TxnResponse(EtcdMessage, frozen=True):
    """`succeeded`: all conditions held, and the operations were done."""

    header: Header
    succeeded: bool = False


class LeaseGrantRequest(EtcdMessage, frozen=True):
    """Ask for a lease of `ttl_s` seconds; etcd may grant more."""

    ttl_s: int = msgspec.field(name="TTL")


class LeaseRequest(EtcdMessage, frozen=True):
    """Keep a lease alive, or revoke it."""

    lease: int = msgspec.field(name="ID")


class LeaseResponse(EtcdMessage, frozen=True):
    """A lease and its lifetime in seconds; `ttl_s` 0: the lease does not exist."""

    lease: int = msgspec.field(name="ID", default=0)
    ttl_s: int = msgspec.field(name="TTL", default=0)
    header: Header = msgspec.field(default_factory=Header)


class Nothing(EtcdMessage, frozen=True):
    """A response whose fields are not read."""


class WatchCreateRequest(EtcdMessage, frozen=True):
    """Watch a range from `start_revision` on. `progress_notify`: etcd sends its revision also while nothing changes."""

    key: bytes
    range_end: bytes
    start_revision: int
    progress_notify: bool


class WatchRequest(EtcdMessage, frozen=True):
    """The one request of a stream."""

    create_request: WatchCreateRequest


class EtcdEvent(EtcdMessage, frozen=True):
    """One change of a key. `type`: PUT or DELETE."""

    kv: KeyValue
    type: str = "PUT"


class WatchResponse(EtcdMessage, frozen=True):
    """Events of a watch. If it has no events, and neither `created` nor `canceled` is set, etcd has sent all changes up
    to the header's revision."""

    header: Header
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: list[EtcdEvent] = []


class Failure(EtcdMessage, frozen=True):
    """An error. `code` is gRPC's status code; streams of etcd before 3.6 call it `grpc_code`."""

    code: int = 0
    grpc_code: int = 0
    message: str = ""


class WatchLine(EtcdMessage, frozen=True):
    """One line of a watch stream."""

    result: WatchResponse | None = None
    error: Failure | None = None


class KeepAliveLine(EtcdMessage, frozen=True):
    """The one line of the response to a keep-alive."""

    result: LeaseResponse | None = None
    error: Failure | None = None


class Keys:
    """Keys in a namespace: `topics/flights` is `<namespace>/topics/flights` in etcd. UTF-8 keeps the order of keys."""

    def __init__(self, namespace: str) -> None:
        assert namespace.strip("/"), "an empty namespace would hold all keys of etcd"
        self._root = f"{namespace.rstrip('/')}/".encode()

    def pack(self, key: str) -> bytes:
        """The key in etcd."""
        return self._root + key.encode()

    def unpack(self, key: bytes) -> str:
        """The key in the store."""
        assert key.startswith(self._root), (key, self._root)
        return key[len(self._root) :].decode()

    def range(self, prefix: str) -> tuple[bytes, bytes]:
        """The range of all keys that start with `prefix`: its first key, and the first key after it."""
        start = self.pack(prefix)
        return start, start[:-1] + bytes([start[-1] + 1])  # no byte of UTF-8 is 255
