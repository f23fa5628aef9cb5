"""The messages of etcd's v3 API that are used here, as its JSON gateway writes them.

Names are those of etcd's own protocol definition. Bytes are base64. 64-bit integers arrive as strings and may be sent
as numbers; what has its default value is left out, by etcd and by us.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields that are not named here are skipped."""


class Header(Message, frozen=True):
    """Of every answer: the store's revision when it was given."""

    revision: int = 0


class KeyValue(Message, frozen=True):
    """A key as it is, or (in an event) as it became; without a value if it was removed."""

    key: bytes = b""
    value: bytes = b""
    mod_revision: int = 0


class RangeRequest(Message, frozen=True):
    """Read `key`, or everything from it up to, not including, `range_end`. Linearizable."""

    key: bytes
    range_end: bytes = b""


class RangeResponse(Message, frozen=True):
    """In key order."""

    header: Header
    kvs: list[KeyValue] = []


class Compare(msgspec.Struct, frozen=True):
    """That `key` was last written at `mod_revision`; 0: that it does not exist."""

    key: bytes
    mod_revision: int
    target: str = "MOD"
    result: str = "EQUAL"


class PutRequest(Message, frozen=True):
    """Write; `lease` 0 is none."""

    key: bytes
    value: bytes
    lease: int = 0


class DeleteRangeRequest(Message, frozen=True):
    """Remove one key."""

    key: bytes


class RequestOp(Message, frozen=True):
    """One of the two."""

    request_put: PutRequest | None = None
    request_delete_range: DeleteRangeRequest | None = None


class TxnRequest(Message, frozen=True):
    """If all of `compare` hold, do all of `success`."""

    compare: list[Compare]
    success: list[RequestOp]


class TxnResponse(Message, frozen=True):
    """Whether they held."""

    header: Header
    succeeded: bool = False


class LeaseGrantRequest(Message, frozen=True):
    """Seconds; etcd may grant more."""

    ttl_s: int = msgspec.field(name="TTL")


class LeaseRequest(Message, frozen=True):
    """Keep alive, or revoke."""

    lease: int = msgspec.field(name="ID")


class LeaseResponse(Message, frozen=True):
    """`ttl_s` is 0 (that is, left out) if the lease is no more."""

    lease: int = msgspec.field(name="ID", default=0)
    ttl_s: int = msgspec.field(name="TTL", default=0)


class Nothing(Message, frozen=True):
    """An answer of which nothing is needed."""


class WatchCreateRequest(Message, frozen=True):
    """Everything in the range from `start_revision` on; and now and then, if etcd likes, word that all is told."""

    key: bytes
    range_end: bytes
    start_revision: int
    progress_notify: bool


class WatchRequest(Message, frozen=True):
    """The one request of a stream."""

    create_request: WatchCreateRequest


class Event(Message, frozen=True):
    """PUT or DELETE."""

    kv: KeyValue
    type: str = "PUT"


class WatchResponse(Message, frozen=True):
    """Neither `created` nor `canceled` nor events: everything up to the header's revision has been told."""

    header: Header
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: list[Event] = []


class Failure(Message, frozen=True):
    """An error: `code` (in streams of etcd before 3.6 `grpc_code`) is gRPC's status code."""

    code: int = 0
    grpc_code: int = 0
    message: str = ""


class WatchLine(Message, frozen=True):
    """A line of the stream."""

    result: WatchResponse | None = None
    error: Failure | None = None


class KeepAliveLine(Message, frozen=True):
    """The one line of the answer to a keep-alive."""

    result: LeaseResponse | None = None
    error: Failure | None = None
