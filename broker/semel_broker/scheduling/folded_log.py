"""PURE: bounds the log lines of events that a peer can cause, so that no client fills the disk or hides other lines.

Of each kind of line, an event with the facts in `EVENTS`, an interval has `KIND_LINES_MAX` lines, and of each event
`EVENT_LINES_MAX`. Further lines are counted. Once the interval is over, a line `<event>_repeated` says how many there
were. It is written with the next line of any kind. Events that are not in `EVENTS` are never folded: they are those of
the broker itself, and what an administrator does. The audit log has a writer of its own, and all of its lines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

INTERVAL_S: Final = 60.0
KIND_LINES_MAX: Final = 10
EVENT_LINES_MAX: Final = 600
KINDS_MAX: Final = 1_000
"""Kinds that are remembered. The one that began longest ago is forgotten first, and its count goes to its event."""
TEXT_MAX: Final = 500
"""Characters of a text in a line: client ids and group ids are as long as clients like."""

EVENTS: Final[dict[str, tuple[str, ...]]] = {
    # connections and requests
    "connection_closed": ("reason", "client_host"),
    "tls_handshake_failed": ("reason", "client_host"),
    "sasl_authentication_failed": ("reason", "client_host"),
    "not_authorized": ("principal", "resource"),
    "client_throttled": ("quota", "user", "client_id", "ip"),
    "request_failed": ("api",),
    "log_unreadable": ("topic", "partition"),
    "client_metrics_dropped": (),
    # groups
    "group_generation_stored": ("group",),
    "group_not_stored": ("group",),
    "group_member_expired": ("group",),
    "consumer_group_stored": ("group",),
    "consumer_group_downgraded": ("group",),
    "consumer_removed": ("group",),
    "consumer_not_removed": ("group",),
    "offsets_expired": ("group",),
    # transactions
    "producer_fenced": ("transactional_id",),
    "transaction_not_completed": ("transactional_id",),
    "timed_out_not_aborted": ("transactional_id",),
    "hanging_transaction_aborted": ("by",),
    "marker_refused": ("by",),
    # topics
    "topic_created": ("topic",),
    "topic_changed": ("topic",),
    "topic_deleted": ("topic",),
    "segments_deleted": ("topic", "partition"),
}
"""The events that peers cause -> the fields by which their lines are of one kind."""

Kind = tuple[str, tuple[object, ...] | None]
"""(event, values of its fields); None: the event as a whole."""


class LogMethods(Protocol):
    """The methods of a `world.Logger`."""

    def debug(self, event: str, **fields: object) -> None: ...
    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def exception(self, event: str, **fields: object) -> None: ...


class Count:
    """The lines of one kind since `since_s`."""

    __slots__ = ("folded", "since_s", "write", "written")

    def __init__(self, since_s: float, write: Callable[..., None]) -> None:
        self.since_s, self.write = since_s, write
        self.written = self.folded = 0


class FoldedLog:
    """A logger that writes to `log`. `clock`: seconds that never decrease."""

    def __init__(self, log: LogMethods, clock: Callable[[], float]) -> None:
        self._log, self._clock = log, clock
        self.debug = log.debug  # never folded: the log of a broker in production has none
        self._counts: OrderedDict[Kind, Count] = OrderedDict()  # in the order of their beginnings

    def info(self, event: str, **fields: object) -> None:
        self._write(self._log.info, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(self._log.warning, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(self._log.error, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        self._write(self._log.exception, event, fields)

    def flush(self) -> None:
        """Write how many lines were folded, although their interval is not over: the log ends."""
        while self._counts:
            self._report(*self._counts.popitem(last=False))

    # --- inside ---

    def _write(self, write: Callable[..., None], event: str, fields: dict[str, object]) -> None:
        now_s = self._clock()
        while self._counts:
            kind, count = next(iter(self._counts.items()))
            if now_s - count.since_s < INTERVAL_S:
                break
            del self._counts[kind]
            self._report(kind, count)
        names = EVENTS.get(event)
        if names is None:
            write(event, **fields)
            return
        whole = self._count((event, None), write, now_s)
        fields = {name: _cut(value) for name, value in fields.items()}
        one = self._count((event, tuple(str(fields.get(name, "")) for name in names)), write, now_s)
        if one.written >= KIND_LINES_MAX:
            one.folded += 1
        elif whole.written >= EVENT_LINES_MAX:
            whole.folded += 1
        else:
            one.written += 1
            whole.written += 1
            write(event, **fields)

    def _count(self, kind: Kind, write: Callable[..., None], now_s: float) -> Count:
        count = self._counts.get(kind)
        if count is None:
            count = self._counts[kind] = Count(now_s, write)
            if len(self._counts) > KINDS_MAX:
                self._forget_one()
        return count

    def _forget_one(self) -> None:
        """Forget the oldest count of a kind; what it has folded counts for its event."""
        kind = next(kind for kind in self._counts if kind[1] is not None)
        forgotten = self._counts.pop(kind)
        whole = self._counts.get((kind[0], None))
        if whole is not None:
            whole.folded += forgotten.folded

    @staticmethod
    def _report(kind: Kind, count: Count) -> None:
        event, values = kind
        if count.folded:
            facts = {} if values is None else dict(zip(EVENTS[event], values, strict=True))
            count.write(f"{event}_repeated", times=count.folded, within_s=round(INTERVAL_S), **facts)


def _cut(value: object) -> object:
    return f"{value[:TEXT_MAX]}..." if isinstance(value, str) and len(value) > TEXT_MAX else value
