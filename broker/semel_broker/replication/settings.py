"""The settings of replication, and the bounds that are none."""

from __future__ import annotations

from typing import Final, Protocol

FRAME_BYTES_MAX: Final = 256 << 20
"""Of one answer of another broker: a first batch comes whole, however large. Memory is taken as bytes arrive."""
CONNECT_TIMEOUT_S: Final = 3.0
REQUEST_TIMEOUT_MS: Final = 10_000
"""That another broker may take over its answer, besides the time that it was asked to wait."""
RETRY_S_MIN: Final = 0.02
RETRY_S_MAX: Final = 1.0


class ReplicationSettings(Protocol):
    """What this package needs of the broker's settings."""

    @property
    def node_id(self) -> int: ...
    @property
    def replica_fetch_max_bytes(self) -> int: ...
    @property
    def replica_fetch_response_max_bytes(self) -> int: ...
    @property
    def replica_fetch_wait_max_ms(self) -> int: ...
    @property
    def replica_lag_time_max_ms(self) -> int: ...
    @property
    def replication_quota_bytes_per_second(self) -> int: ...
    @property
    def leader_replication_throttled_rate(self) -> int: ...
    @property
    def follower_replication_throttled_rate(self) -> int: ...


class Registered(Protocol):
    """This broker's place in the cluster."""

    @property
    def epoch(self) -> int:
        """The broker epoch."""
        ...

    def is_valid(self) -> bool:
        """Whether this broker may act as a leader now."""
        ...
