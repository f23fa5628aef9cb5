"""The limits of replication, and the parts of the settings and of the registration that it uses."""

from __future__ import annotations

from typing import Final, Protocol

FRAME_BYTES_MAX: Final = 256 << 20
"""Of one response: the first batch comes whole, however large it is. Memory is allocated as bytes arrive."""
CONNECT_TIMEOUT_S: Final = 3.0
REQUEST_TIMEOUT_MS: Final = 10_000
"""The time that another broker has for a response, besides the time that the request lets it wait."""
RETRY_S_MIN: Final = 0.02
RETRY_S_MAX: Final = 1.0


class ReplicationSettings(Protocol):
    """The broker settings that replication reads."""

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
    """The registration of this broker in the cluster."""

    @property
    def epoch(self) -> int:
        """The broker epoch."""
        ...

    def is_valid(self) -> bool:
        """Whether this broker may act as a leader now."""
        ...
