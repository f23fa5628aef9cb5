"""Settings of a log: Kafka's topic settings with Kafka's defaults."""

from typing import Literal

import msgspec

INT64_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: name.replace("_", ".")):
    """Settings of one log. Requests and files use Kafka's dotted names (`segment.bytes`, ...).

    -1 means no limit for `retention_ms` and `retention_bytes`.
    """

    cleanup_policy: tuple[Literal["delete", "compact"], ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = INT64_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 7 * DAY_MS

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
