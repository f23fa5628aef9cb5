"""EDGE: how many files and connections this process may still open, and the one log line that says what to do.

A connection takes a descriptor, and so does each log that is in use. Connections are let in only as long as some are
left for logs: clients that connect must not keep a broker from writing.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from semel_broker.world import Logger

SAY_AGAIN_S = 60.0
RESERVED_PART = 8
"""One in so many descriptors is kept for logs."""
RESERVED_MIN, RESERVED_MAX = 32, 512


class OpenFiles:
    """Of this process. `limit`: RLIMIT_NOFILE."""

    def __init__(self, log: Logger, monotonic: Callable[[], float]) -> None:
        self._log, self._monotonic = log, monotonic
        self._said_at: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self.limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.reserved = min(max(self.limit // RESERVED_PART, RESERVED_MIN), RESERVED_MAX)

    def used(self) -> int:
        """How many are open."""
        try:
            return len(os.listdir("/proc/self/fd"))
        except OSError:  # that takes one, too
            return self.limit

    def may_be_held(self, descriptor: int) -> bool:
        """Whether a connection may keep this descriptor. The system gives the lowest that is free, so the last ones are
        left for logs as long as no connection keeps one of them. Says so in the log when it may not."""
        if descriptor < self.limit - self.reserved:
            return True
        self.say("connections_refused_for_files", reserved_for_logs=self.reserved)
        return False

    def say(self, event: str, **facts: object) -> None:
        """A line for an operator, at most one of each kind in SAY_AGAIN_S; it counts those that were left out."""
        now = self._monotonic()
        if now - self._said_at.get(event, -SAY_AGAIN_S) < SAY_AGAIN_S:
            self._unsaid[event] = self._unsaid.get(event, 0) + 1
            return
        self._said_at[event] = now
        self._log.error(
            event,
            open_files=self.used(),
            limit=self.limit,
            not_logged=self._unsaid.pop(event, 0),
            do="raise the limit (ulimit -n, or LimitNOFILE of systemd) and restart the broker, or close connections",
            **facts,
        )

    def used_up(self) -> None:
        """A log could not be opened."""
        self.say("files_used_up")

    def check_start(self, partitions: int) -> None:
        """Warns when the files of so many partitions do not fit."""
        if partitions > self.limit - self.reserved:
            self._log.warning(
                "files_may_run_out",
                partitions=partitions,
                limit=self.limit,
                do="raise the limit (ulimit -n, or LimitNOFILE of systemd): each partition in use takes a file, each "
                "connection another one",
            )
