"""Knows which brokers a client cannot reach and why, for the text of every timeout and for one warning per address.

A pool reports each attempt to connect and its outcome. An entry is about one address. It ends when the address is
reached, or when the broker has left the cluster's metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from semel._edge import Edge
from semel._net.retry import LOGIN_REFUSED
from semel.errors import KafkaError

log = logging.getLogger(__name__)

WARN_LOST_S = 5.0
"""An address that was reached before is warned about after this time: its broker may be restarting."""
SLOW_S = 3.0
"""An attempt that takes longer than this is warned about before it fails."""
RECENT_S = 2.0
"""A failure is recent for this time: longer than the pause between two attempts (reconnect_backoff_max_ms)."""
NAMED_MAX = 4
"""The number of addresses that one text names."""

Explain = Callable[[str, float], str]
"""Adds the recent errors of brokers to the text of a timeout: text, milliseconds waited. See Reachability.explained."""


class Trouble:
    """An address that was not reached at the last attempt, or whose connection was lost.

    node_id: below 0 for a bootstrap server. error: the last one, at `failed_at`. since: when the first attempt began
    that has not led to a connection. begun_at: of the attempt in progress. step: what that attempt waits for.
    needed_since: since when a request needs this very broker; None while any broker would do. was_reached: whether an
    earlier attempt of this client reached the address.
    """

    __slots__ = (
        "address",
        "begun_at",
        "error",
        "failed_at",
        "is_told",
        "needed_since",
        "node_id",
        "since",
        "step",
        "was_reached",
    )

    def __init__(self, node_id: int, address: str, since: float, *, was_reached: bool) -> None:
        self.node_id, self.address, self.since, self.was_reached = node_id, address, since, was_reached
        self.error: KafkaError | None = None
        self.failed_at = since
        self.begun_at: float | None = None
        self.step = ""
        self.needed_since: float | None = None
        self.is_told = False

    @property
    def name(self) -> str:
        """`broker 0 at 127.0.0.1:9092`."""
        return f"bootstrap server {self.address}" if self.node_id < 0 else f"broker {self.node_id} at {self.address}"

    def cause(self, now: float) -> str:
        """The last error, or the step that the first attempt waits for."""
        if self.error is None:
            return f"{self.step} for {now - self.since:.1f} s"
        return self.error.message.removeprefix(f"cannot connect to {self.address}: ")

    def reason(self, now: float) -> str:
        """As `cause`, an error with its age."""
        age = "" if self.error is None else f" ({max(0.0, now - self.failed_at):.1f} s ago)"
        return f"{self.cause(now)}{age}"


class Reachability:
    """The addresses that one client cannot reach.

    is_silent: the owner reports unreachable addresses itself, so no warnings are logged. last_reached: the address of
    the last connection that was opened.
    """

    def __init__(self, edge: Edge, client_id: str) -> None:
        self._edge, self._client_id = edge, client_id
        self._troubles: dict[str, Trouble] = {}
        self._reached: dict[str, None] = {}
        self.last_reached = ""
        self._metadata_at = float("-inf")
        self.is_silent = False

    # Reports of the pool

    def attempting(self, node_id: int, address: str, *, is_needed: bool) -> None:
        """An attempt to connect begins. is_needed: a request needs this broker and no other."""
        now = self._edge.monotonic()
        trouble = self._troubles.get(address)
        if trouble is None:
            trouble = self._troubles[address] = Trouble(node_id, address, now, was_reached=address in self._reached)
        if node_id >= 0:
            trouble.node_id = node_id
        trouble.begun_at, trouble.step = now, "connecting"
        self.needed(address, is_needed=is_needed)

    def needed(self, address: str, *, is_needed: bool = True) -> None:
        """A request waits for an attempt in progress."""
        trouble = self._troubles.get(address)
        if trouble is not None and is_needed and trouble.needed_since is None:
            trouble.needed_since = self._edge.monotonic()

    def waits_for(self, address: str, step: str) -> None:
        """The attempt in progress waits for this."""
        if address in self._troubles:
            self._troubles[address].step = step

    def failed(self, node_id: int, address: str, error: KafkaError) -> None:
        """An attempt has failed, or a connection was lost."""
        now = self._edge.monotonic()
        trouble = self._troubles.get(address)
        if trouble is None:
            trouble = self._troubles[address] = Trouble(node_id, address, now, was_reached=address in self._reached)
        trouble.error, trouble.failed_at, trouble.begun_at = error, now, None
        if not isinstance(error, LOGIN_REFUSED):  # the application gets that error
            self._warn(trouble, now)

    def still_waiting(self, address: str) -> None:
        """The attempt in progress takes long."""
        if address in self._troubles:
            self._warn(self._troubles[address], self._edge.monotonic())

    def given_up(self, address: str) -> None:
        """An attempt was cancelled."""
        if address in self._troubles:
            self._troubles[address].begun_at = None

    def reached(self, address: str) -> None:
        """A connection was opened, and the broker has answered."""
        trouble = self._troubles.pop(address, None)
        if trouble is not None and trouble.is_told:
            log.info("client %r: %s is reached again", self._client_id, trouble.name)
        self._reached[address] = None
        self.last_reached = address

    def metadata_answered(self, addresses: Iterable[str]) -> None:
        """Metadata has arrived, with brokers at these addresses. Forgets other brokers; bootstrap servers stay."""
        self._metadata_at = self._edge.monotonic()
        kept = frozenset(addresses)
        for address, trouble in list(self._troubles.items()):
            if trouble.node_id >= 0 and address not in kept:
                del self._troubles[address]

    # Questions

    @property
    def has_metadata(self) -> bool:
        """Whether a broker has ever answered this client's request for metadata."""
        return self._metadata_at > float("-inf")

    def current(self) -> list[Trouble]:
        """The addresses that are being tried, or failed a moment ago."""
        now = self._edge.monotonic()
        return [
            trouble
            for trouble in self._troubles.values()
            if trouble.begun_at is not None or (trouble.error is not None and now - trouble.failed_at < RECENT_S)
        ]

    def words(self, troubles: Iterable[Trouble]) -> str:
        """`broker 0 at 127.0.0.1:9092: [Errno 111] Connection refused (0.2 s ago)`, for each."""
        now = self._edge.monotonic()
        listed = [f"{trouble.name}: {trouble.reason(now)}" for trouble in troubles]
        more = [f"and {len(listed) - NAMED_MAX} more"] if len(listed) > NAMED_MAX else []
        return "; ".join(listed[:NAMED_MAX] + more)

    def explained(self, text: str, waited_ms: float) -> str:
        """The text of a timeout with the errors of brokers that were not reached in the time waited. An error that the
        text has already is not added.
        """
        oldest = self._edge.monotonic() - waited_ms / 1000
        found = [
            trouble
            for trouble in self._troubles.values()
            if (trouble.begun_at is not None or trouble.failed_at >= oldest)
            and not (trouble.error is not None and trouble.error.message in text)
        ]
        return f"{text}; not reached: {self.words(found)}" if found else text

    # Inside

    def _warn(self, trouble: Trouble, now: float) -> None:
        if self.is_silent or trouble.is_told or trouble.node_id < 0:
            return
        is_short = now - trouble.since < WARN_LOST_S
        is_outage = self._metadata_at < trouble.since  # the warning of the metadata task names it
        if trouble.was_reached and (is_short or is_outage or trouble.needed_since is None):
            return
        trouble.is_told = True
        if trouble.was_reached:
            log.warning(
                "client %r: broker %d at %s has not been reached for %.0f s, trying again: %s. Check that it runs",
                self._client_id, trouble.node_id, trouble.address, now - trouble.since, trouble.reason(now),
            )  # fmt: skip
        else:
            log.warning(
                "client %r: %s answered, but the address that broker %d advertises, %s, does not: %s. Check that this "
                "broker runs, and that its advertised.listeners names an address that can be reached from here. Trying "
                "again",
                self._client_id, self.last_reached, trouble.node_id, trouble.address, trouble.reason(now),
            )  # fmt: skip
