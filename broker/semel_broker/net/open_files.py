"""EDGE: the limit of open files: reserves descriptors for logs, and logs when the limit is reached.

Each connection takes a descriptor, and so does each log in use. Connections are accepted only while enough descriptors
are left for logs: clients that connect must not stop a broker from writing.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable

from semel_broker.world import Logger

LOG_INTERVAL_S = 60.0
DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
RESERVED_PART = 8
"""One in this many descriptors is reserved for logs."""
RESERVED_MIN, RESERVED_MAX = 32, 512


class OpenFiles:
    """The open files of this process. `limit`: RLIMIT_NOFILE."""

    def __init__(self, log: Logger, monotonic: Callable[[], float]) -> None:
        self._log, self._monotonic = log, monotonic
        self._logged_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}
        self.limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.reserved = min(max(self.limit // RESERVED_PART, RESERVED_MIN), RESERVED_MAX)

    def used(self) -> int:
        """The number of open descriptors."""
        try:
            return len(os.listdir(DESCRIPTORS))
        except OSError:  # listing takes a descriptor, too
            return self.limit

    def may_keep(self, descriptor: int) -> bool:
        """Whether a connection may keep this descriptor; logs if it may not.

        The system assigns the lowest free descriptor. So the highest stay free for logs if no connection keeps one.
        """
        if descriptor < self.limit - self.reserved:
            return True
        self.log_limited("connections_refused_for_files", reserved_for_logs=self.reserved)
        return False

    def log_limited(self, event: str, **facts: object) -> None:
        """Log `event` for the operator, at most once in LOG_INTERVAL_S; the line counts those left out."""
        now = self._monotonic()
        if now - self._logged_at.get(event, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            self._suppressed[event] = self._suppressed.get(event, 0) + 1
            return
        self._logged_at[event] = now
        self._log.error(
            event,
            open_files=self.used(),
            limit=self.limit,
            not_logged=self._suppressed.pop(event, 0),
            do="raise the limit (ulimit -n, or LimitNOFILE of systemd) and restart the broker, or close connections",
            **facts,
        )

    def log_used_up(self) -> None:
        """A log could not be opened because no descriptor is left."""
        self.log_limited("files_used_up")

    def check_start(self, partitions: int) -> None:
        """Warn if the files of `partitions` partitions exceed the limit."""
        if partitions > self.limit - self.reserved:
            self._log.warning(
                "files_may_run_out",
                partitions=partitions,
                limit=self.limit,
                do="raise the limit (ulimit -n, or LimitNOFILE of systemd): each partition in use takes a file, each "
                "connection another one",
            )
